"""An operator that is older than the CRD, or than the operator before it: jobs have fields, words and a status that it
does not know."""

from typing import Any, cast

import pytest

from epochal.control.events import Event, EventReason
from epochal.control.lifecycle import JobPhase
from epochal.control.schema import ManifestError
from epochal_operator.kubernetes import spec_reader
from epochal_operator.kubernetes.spec_reader import SpecReader
from epochal_operator.reporting.status import load_record
from epochal_operator.stores.store_access import StoreRules

CHECKPOINT: dict[str, Any] = {"interval": "30s", "storage": {"uri": "s3://bucket/jobs"}}
SPEC: dict[str, Any] = {"image": "shop/orders:7", "pipeline": {"module": "shop.orders"}, "checkpoint": CHECKPOINT}


def with_fields(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**spec, **more}


@pytest.fixture(autouse=True)
def nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_reader, "problem_of", lambda *_: "")


def body(spec: dict[str, Any], generation: int = 1) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "shop", "uid": "1", "generation": generation}
    return {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob", "metadata": metadata, "spec": spec}


def reader() -> SpecReader:
    return SpecReader(cast(Any, None), lambda: 1000.0, None, StoreRules())


def test_fields_that_it_does_not_know_are_passed_over_and_told() -> None:
    events: list[Event] = []
    newer = with_fields(
        SPEC,
        autoscaling={"max": 8},
        checkpoint=with_fields(CHECKPOINT, unaligned=True),
    )
    spec = reader().read(body(newer), events)
    assert not spec.problem
    assert spec.checkpoint.interval == 30.0
    [event] = events
    assert event.reason is EventReason.UNKNOWN_FIELDS
    assert "spec.autoscaling, spec.checkpoint.unaligned" in event.message
    known = reader().read(body(SPEC), [])
    assert spec.revision == known.revision, "a driver is not replaced because the CRD has a new default"


def test_fields_are_told_once_for_each_edit() -> None:
    one, events = reader(), list[Event]()
    for _ in range(3):
        one.read(body(with_fields(SPEC, autoscaling={})), events)
    assert len(events) == 1
    one.read(body(with_fields(SPEC, autoscaling={}), generation=2), events)
    assert len(events) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"state": "Draining"}, "spec.state: 'Draining' is none of Running, Suspended"),
        ({"restore": {"onCommittedOutput": "Compensate"}}, "spec.restore.onCommittedOutput: 'Compensate' is none of"),
        (
            {"checkpoint": with_fields(CHECKPOINT, timeout="adaptive")},
            "spec.checkpoint.timeout",
        ),
    ],
    ids=["enumeration", "nested", "another form"],
)
def test_a_value_that_it_cannot_use_is_told_and_the_job_is_left_as_it_is(more: dict[str, Any], said: str) -> None:
    """And not dropped by a round that fails: a driver that runs keeps its checkpoints."""
    one, events = reader(), list[Event]()
    spec = [one.read(body(with_fields(SPEC, **more)), events) for _ in range(3)][-1]
    assert said in spec.problem
    assert "upgrade the operator" in spec.problem
    assert [event.reason for event in events] == [EventReason.SPEC_NOT_ACCEPTED]
    assert not one.read(body(SPEC, generation=2), events).problem, "corrected"


def test_a_spec_of_which_nothing_is_left_is_an_error() -> None:
    with pytest.raises(ManifestError):
        reader().read(body({"pipeline": {"wasm": "x"}}), [])


def test_a_record_with_more_in_it_is_read() -> None:
    record = {
        "checkpoints": {"uid": "1", "generation": 7, "generation_started": 5.0, "unheard_of": [1]},
        "phase": "Running",
        "forecast": {"cost": 3},
    }
    found = load_record({"record": record, "autoscaler": {}})
    assert found is not None
    assert found.checkpoints.generation == 7
    assert found.phase is JobPhase.RUNNING


def test_a_record_in_words_that_it_does_not_know_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        load_record({"record": {"checkpoints": {"uid": "1", "generation": 7}, "phase": "Draining"}})
