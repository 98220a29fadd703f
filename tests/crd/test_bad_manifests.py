"""Every bad manifest is refused with the right words, by a real API server and without one; the page says so."""

import pytest

from epochal.control.schema import job_schema
from tests.crd.bad_manifests import (
    PAGE,
    WRITE,
    cluster_answer,
    make_surroundings,
    offline_answer,
    offline_cell,
    operator_answer,
    page,
    row_begin,
    tried,
)
from tests.crd.cases import NOT_ACCEPTED, SECTIONS, UPDATES, Case
from tests.crd.server import Server
from tests.operator.test_job import fields

CASES = [case for _, cases in SECTIONS for case in cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(tried(case))[:100])
def test_validate_refuses_it_and_says_what_the_page_says(case: Case) -> None:
    assert offline_answer(case) is not None or case in UPDATES, "only a change needs a cluster to be refused"
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(row_begin(case))]
    assert rows, WRITE
    assert rows[0].endswith(offline_cell(case)), WRITE


def test_a_cluster_refuses_it_with_the_right_words(server: Server) -> None:
    wrong = []
    for case in CASES:
        answer = cluster_answer(server, case)
        if case.says not in answer:
            wrong.append(f"{tried(case)}: {case.says!r} is not in {answer!r}")
    assert not wrong, "\n".join(wrong)


def test_the_operator_does_not_start_what_cannot_run_here(server: Server) -> None:
    make_surroundings(server)
    for case in NOT_ACCEPTED:
        assert case.says in operator_answer(server, case), tried(case)


def test_the_page_is_up_to_date(server: Server) -> None:
    assert page(server) == PAGE.read_text(encoding="utf-8"), WRITE


def test_enough_has_been_tried() -> None:
    assert len({tried(case) for case in CASES}) >= 150


def test_every_rule_has_a_manifest_that_breaks_it() -> None:
    rules = {
        (path, rule["message"])
        for path, schema in fields(job_schema())
        for rule in schema.get("x-kubernetes-validations", ())
    }
    shown = PAGE.read_text(encoding="utf-8").replace("\\_", "_").replace("\\*", "*").replace("\\|", "|")
    missing = {message for _, message in rules if message not in shown}
    assert not missing, "add a manifest to tests/crd/cases.py that breaks each of these"
