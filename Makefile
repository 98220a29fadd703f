# Every target sets up what it needs: a bare Python 3.11 is enough to start with.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := bash

BIN := .venv/bin
READY := .venv/.ready
CLASSES := .venv/spark-classes.jsa
FAST := not s3 and not slow and not spark and not cluster
WORKERS ?= 2

.PHONY: help
help: ## Show this help
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; \
		do printf '  make %-16s %s\n' "$$name" "$$text"; done

$(READY): pyproject.toml uv.lock scripts/bootstrap.sh
	@scripts/bootstrap.sh python

.PHONY: setup
setup: $(READY) ## Set up .venv (every other target does so by itself)
	@:

.PHONY: java
java:
	@scripts/bootstrap.sh java

# Tests start Spark many times, each time 10 s of CPU sooner with an archive of the classes that it loads.
$(CLASSES): docker/warm_up.py | $(READY) java
	@echo "writing $@ (once)" && $(BIN)/python docker/warm_up.py $@ >$@.log 2>&1 || { cat $@.log; exit 1; }

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
test: lint $(CLASSES) ## Lint and every test, those on a real cluster included (the first run builds Kubernetes and images: half an hour more)
	$(BIN)/python -m cluster build
	$(BIN)/python -m tests.support.kafka.jars
	$(BIN)/python -m tests.support.postgres
	scripts/run-tests.sh $(WORKERS)

.PHONY: e2e
e2e: $(READY) java ## Only the tests on the whole cluster: pods, kills, lost stores
	$(BIN)/python -m cluster build
	$(BIN)/pytest -m node

.PHONY: demo
demo: $(READY) java ## See it work: a join and windows, the driver killed in the middle, the same result (2 minutes)
	$(BIN)/python examples/revenue/demo.py

.PHONY: cluster
cluster: $(READY) ## A real Kubernetes and an S3 server on this machine, with the project's images
	$(BIN)/python -m cluster up

.PHONY: cluster-status
cluster-status: $(READY) ## What of the cluster runs, and how to reach it
	@$(BIN)/python -m cluster status

.PHONY: cluster-demo
cluster-demo: cluster ## A job on the cluster; driver, executor and operator killed; its output must be the computed one
	$(BIN)/python examples/cluster/demo.py

.PHONY: reload
reload: $(READY) ## Bring what was edited into the cluster
	$(BIN)/python -m cluster reload

.PHONY: cluster-down
cluster-down: $(READY) ## End the cluster; nothing is left but images that were built
	$(BIN)/python -m cluster down

.PHONY: format
format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: docs
docs: $(READY) ## Build the documentation site into build/site
	$(BIN)/mkdocs build --strict

.PHONY: docs-serve
docs-serve: $(READY) ## Show the documentation site on this machine, also while you edit
	$(BIN)/mkdocs serve

SPARKS ?= 4.2.1 4.3.0

.PHONY: newest-sparks
newest-sparks: $(READY) java ## See whether what is needed of Spark's private parts is there in newer Sparks (SPARKS="4.2.1 4.3.0")
	scripts/newest-sparks.sh $(SPARKS)

.PHONY: histories
histories: $(READY) ## Check the protocol on 10,000 random histories
	EPOCHAL_HISTORIES=10000 $(BIN)/pytest tests/protocol/test_histories.py -n $(WORKERS) -o timeout=0

# What is restored, what is not, and what sinks do then: each case once, beside the kills.
GOING_BACK := tests/runtime/test_restoring.py tests/runtime/test_going_back.py tests/connectors/test_going_back.py \
	tests/protocol/test_going_back.py tests/protocol/test_versions.py

.PHONY: exactly-once
exactly-once: $(CLASSES) ## Kill drivers and executors, hinder restores, go back, meet other versions, and compare what comes out
	$(BIN)/python -m tests.support.kafka.jars
	$(BIN)/python -m tests.support.postgres
	EPOCHAL_KILLS=$${EPOCHAL_KILLS:-20} $(BIN)/pytest tests/exactly_once $(GOING_BACK) -s

.PHONY: deep
deep: $(CLASSES) ## Compare operators, Nexmark and SQL with batch queries over more batches, lost drivers and seeds
	EPOCHAL_DEEP=1 $(BIN)/pytest tests/runtime tests/nexmark tests/sql tests/cli -n $(WORKERS) --dist loadfile -m "slow or spark" -o timeout=1200

.PHONY: bench-protocol
bench-protocol: $(READY) ## Measure the protocol against the object store
	$(BIN)/python -m benchmarks.protocol

.PHONY: bench-quick
bench-quick: $(READY) java ## Compare with plain Structured Streaming in 5 minutes (fetches 700 MB for it once)
	$(BIN)/python -m benchmarks.compare --quick

.PHONY: bench
bench: $(READY) java ## The same with large state, more batches and all Nexmark queries that both can do (hours; ARGS=--resume goes on)
	$(BIN)/python -m benchmarks.compare $(ARGS)

.PHONY: bench-limits
bench-limits: $(READY) java ## See how far Epochal is from what reading, shuffling and S3 alone allow
	$(BIN)/python -m benchmarks.limits

.PHONY: bench-cost
bench-cost: $(READY) java ## See how cost grows with rows, keys, executors and epochs kept
	$(BIN)/python -m benchmarks.cost

.PHONY: bench-flink
bench-flink: $(READY) java ## Compare with Flink on Nexmark queries (fetches 1 GB for it once)
	$(BIN)/python -m benchmarks.flink

.PHONY: bench-pause
bench-pause: $(READY) java ## Measure the pause and the bytes of checkpoints at 1 GB of state
	$(BIN)/python -m benchmarks.pause

.PHONY: bench-batch
bench-batch: $(READY) java ## Measure where the time of one small micro-batch goes
	$(BIN)/python -m benchmarks.batch

.PHONY: bench-partitions
bench-partitions: $(READY) java ## Measure what the watermarks of many Kafka partitions cost a batch
	$(BIN)/python -m benchmarks.partitions

.PHONY: bench-operator
bench-operator: $(READY) ## Measure one operator with 50 to 500 jobs, and with jobs that hang (20 minutes; the first run builds an API server)
	$(BIN)/python -m benchmarks.operator_scale

.PHONY: bench-start
bench-start: cluster ## See what the time from kubectl apply, and from a driver's death, is spent on (6 minutes)
	$(BIN)/python -m benchmarks.start

.PHONY: outages
outages: cluster java ## Take S3, databases, the API server and more away from jobs on the cluster, and see them go on (an hour; ARGS=--help)
	$(BIN)/python -m benchmarks.outages $(ARGS)

.PHONY: bench-encryption
bench-encryption: $(READY) java ## Measure what encryption between driver, executors and operator costs, as a ratio (15 minutes)
	$(BIN)/python -m benchmarks.encryption

.PHONY: bench-spill
bench-spill: $(READY) java ## See a job work whose state does not fit into memory
	$(BIN)/python -m benchmarks.spill

.PHONY: bench-growth
bench-growth: $(READY) java ## See that nothing grows in a long run (30 minutes)
	$(BIN)/python -m benchmarks.growth

.PHONY: clean
clean: ## Remove .venv, caches and build results
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
