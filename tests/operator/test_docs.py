"""The operator's page says what the code does."""

from pathlib import Path

from epochal.control.events import MEANING, Event, EventReason
from epochal_operator.reporting.conditions import ConditionType
from epochal_operator.reporting.metrics import OperatorMetrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operator.md"


def events_table() -> str:
    rows = (f"| `{reason}` | {Event(reason, '').type} | {MEANING[reason]} |" for reason in EventReason)
    return "\n".join(rows)


def test_the_page_lists_every_event_and_condition() -> None:
    text = PAGE.read_text()
    assert events_table() in text, f"the table should be:\n{events_table()}"
    for condition in ConditionType:
        assert f"| `{condition}` |" in text


def test_the_page_lists_every_metric() -> None:
    text = PAGE.read_text()
    for family in OperatorMetrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in text, name
