"""Every row of docs/bad-input.md still holds, and the page is what the table says."""

import tempfile
from pathlib import Path

import pytest

from tests.protocol.bad_input import PAGE, Case, all_sections, page, row, sections
from tests.support.s3 import S3Server

WRITE = "write it anew: python -m tests.protocol.bad_input --write"


@pytest.mark.parametrize(
    "case", [case for *_, cases in sections() for case in cases], ids=lambda case: ascii(case.what)
)
def test_the_answer_is_the_one_on_the_page(case: Case) -> None:
    assert row(case) in PAGE.read_text().splitlines(), WRITE


@pytest.mark.s3
def test_the_page_is_up_to_date(s3_server: S3Server) -> None:
    with tempfile.TemporaryDirectory(prefix="epochal-bad-input-") as directory:
        written = page(all_sections(s3_server.make_bucket("bad-input"), Path(directory)))
    assert written == PAGE.read_text(), WRITE


def test_enough_has_been_tried() -> None:
    counts = {title: len(cases) for title, _, cases in sections()}
    assert counts["Manifests"] >= 20
    assert counts["Names of operators, tables and savepoints"] >= 20
    assert counts["Store URIs and options"] >= 15
