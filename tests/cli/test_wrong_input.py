"""Wrong input is told in words, at once, and never by a stack trace; the page says how."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from epochal.cli.commands import commands
from tests.cli.wrong_cases import SECTIONS
from tests.cli.wrong_input import PAGE, WRITE, Wrong, answer, row

CASES = [wrong for _, cases in SECTIONS for wrong in cases]


@pytest.mark.parametrize("wrong", CASES, ids=lambda wrong: ascii(wrong.shown)[:80])
def test_it_is_told_what_is_wrong_and_what_to_write(wrong: Wrong) -> None:
    code, told = answer(wrong)
    assert code == (0 if wrong.warns else 2), told
    assert not wrong.warns or told.startswith(("warning: ", "note: "))
    assert wrong.says in told
    assert "Traceback" not in told
    assert row(wrong, told) in PAGE.read_text(encoding="utf-8"), WRITE


def test_enough_has_been_tried() -> None:
    assert len({wrong.shown for wrong in CASES}) >= 100
    assert PAGE.read_text(encoding="utf-8").count("\n| `") == len(CASES), WRITE


def test_all_mistakes_are_told_at_once_each_with_its_line() -> None:
    wrong = Wrong(
        says="",
        text=(
            "apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\nmetadata:\n  name: words\nspec:\n  pipeline:\n"
            "    file: words.py\n  sparkConf:\n    spark.jars: none.jar\n  suspended: true\n  checkpoint:\n"
            "    interval: 10 seconds\n    intervall: 3s\n"
        ),
        program="def build(p)\n",
    )
    told = answer(wrong)[1]
    for part in (
        "line 10: spec.suspended",
        "line 13: spec.checkpoint.intervall",
        "line 8: spec.sparkConf: spark.jars: there is no file none.jar",
        "words.py, line 1: it is no Python",
    ):
        assert part in told
    assert told.index("line 10") < told.index("line 13")


@pytest.mark.parametrize("example", sorted((PAGE.parents[1] / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_right(example: Path) -> None:
    """No rule is so strict that it refuses what works."""
    if "kind: StreamingJob" not in example.read_text(encoding="utf-8"):
        pytest.skip("no job")
    result = CliRunner().invoke(commands, ["validate", str(example)])
    assert result.exit_code == 0, result.output
    assert "warning" not in result.output
