"""Every wrong text is refused with the right words and its place; the page says so."""

import pytest

from tests.sql.bad_sql import PAGE, Case, all_cases, answer, page

WRITE = "write it anew: python -m tests.sql.bad_sql --write"
CASES = list(all_cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case.sql)[:100])
def test_it_is_refused_with_the_right_words_and_place(case: Case) -> None:
    told = answer(case)
    assert case.says in told
    assert "^" in told.splitlines()[-1]


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), WRITE


def test_enough_has_been_tried() -> None:
    assert len({case.sql for case in CASES}) >= 80
