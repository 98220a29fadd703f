# Every target sets up what it needs: a bare Python 3.11 is enough to start with.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := bash

BIN := .venv/bin
READY := .venv/.ready
FAST := not s3 and not slow and not spark and not cluster
WORKERS ?= 2

.PHONY: help
help: ## Show this help
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; \
		do printf '  make %-16s %s\n' "$$name" "$$text"; done

$(READY): pyproject.toml uv.lock scripts/bootstrap.sh
	@scripts/bootstrap.sh python

.PHONY: setup
setup: $(READY) ## Set up .venv (every other target does so by itself)
	@:

.PHONY: java
java:
	@scripts/bootstrap.sh java

.PHONY: lint
lint: $(READY) ## Linters, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: check
check: lint ## Everything that is fast: lint and the tests that need no server (under 2 minutes)
	$(BIN)/pytest -n $(WORKERS) -m "$(FAST)"

.PHONY: test
test: lint java ## Lint and every test (the first run builds an S3 server, some minutes)
	$(BIN)/python -m tests.support.s3
	$(BIN)/python -m tests.support.kafka.jars
	$(BIN)/pytest -n $(WORKERS)

.PHONY: demo
demo: $(READY) java ## See it work: a join and windows, the driver killed in the middle, the same result (2 minutes)
	$(BIN)/python examples/revenue/demo.py

.PHONY: format
format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: histories
histories: $(READY) ## Check the protocol on 10,000 random histories
	EPOCHAL_HISTORIES=10000 $(BIN)/pytest tests/protocol/test_histories.py -n $(WORKERS) -o timeout=0

.PHONY: exactly-once
exactly-once: $(READY) java ## Kill drivers 20 times on files and 20 times on Kafka, and compare what comes out
	$(BIN)/python -m tests.support.kafka.jars
	EPOCHAL_KILLS=$${EPOCHAL_KILLS:-20} $(BIN)/pytest tests/exactly_once -s

.PHONY: bench-protocol
bench-protocol: $(READY) ## Measure the protocol against the object store
	$(BIN)/python -m benchmarks.protocol

.PHONY: bench-windows
bench-windows: $(READY) java ## Compare windows with plain Structured Streaming (fetches 700 MB for it once)
	$(BIN)/python -m benchmarks.windows

.PHONY: bench-pause
bench-pause: $(READY) java ## Measure the pause and the bytes of checkpoints at 1 GB of state
	$(BIN)/python -m benchmarks.pause

.PHONY: bench-batch
bench-batch: $(READY) java ## Measure where the time of one small micro-batch goes
	$(BIN)/python -m benchmarks.batch

.PHONY: bench-growth
bench-growth: $(READY) java ## See that nothing grows in a long run (30 minutes)
	$(BIN)/python -m benchmarks.growth

.PHONY: clean
clean: ## Remove .venv, caches and build results
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
