"""Short ways to make the documents that tests need."""

from collections.abc import Mapping

from epochal.protocol.documents import (
    PENDING,
    GenerationRecord,
    Manifest,
    OperatorState,
    RunPart,
    StoredRun,
    StoredTable,
    encode,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.store import Store

PATHS = JobPaths("team", "orders")


def state_name(epoch: int, *, generation: int = 1, part: int = 0, paths: JobPaths = PATHS) -> str:
    """A state object that ``epoch`` wrote."""
    return paths.state_object(
        StateName(
            operator="sums", table="totals", epoch=Epoch(epoch), generation=Generation(generation), run=0, part=part
        )
    )


def manifest(
    epoch: int,
    *,
    generation: int = 1,
    claim: str = "driver-a",
    parent: int | None = None,
    objects: tuple[str, ...] | None = None,
    paths: JobPaths = PATHS,
    min_epoch: int = 1,
    pending: Mapping[str, int] | None = None,
) -> Manifest:
    """The manifest of ``epoch``, which needs ``objects``: left out, the one that it wrote itself. ``pending``: how many
    rows it gave to each sink."""
    names = (state_name(epoch, generation=generation, paths=paths),) if objects is None else objects
    runs = tuple(StoredRun(parts=(RunPart(object=name, rows=1, bytes=4),)) for name in names)
    sinks = {sink: _pending(epoch, generation, sink, rows, paths) for sink, rows in (pending or {}).items()}
    return Manifest(
        namespace=paths.namespace,
        job=paths.job,
        epoch=Epoch(epoch),
        generation=Generation(generation),
        claim=claim,
        parent=Epoch(epoch - 1 if parent is None else parent),
        min_epoch=Epoch(min_epoch),
        timestamp=1_700_000_000_000_000,
        then_stop=False,
        operators={"sums": OperatorState(tables={"totals": StoredTable(kind="KeyedTime", runs=runs)}), **sinks},
    )


def _pending(epoch: int, generation: int, sink: str, rows: int, paths: JobPaths) -> OperatorState:
    name = StateName(operator=sink, table=PENDING, epoch=Epoch(epoch), generation=Generation(generation), run=0, part=0)
    runs = (StoredRun(parts=(RunPart(object=paths.state_object(name), rows=rows, bytes=4),)),) if rows else ()
    return OperatorState(tables={PENDING: StoredTable(kind="KeyedTime", runs=runs)})


def generation_record(
    generation: int, *, claim: str = "driver-a", back_to: int | None = None, savepoint: str | None = None
) -> GenerationRecord:
    return GenerationRecord(
        generation=Generation(generation),
        claim=claim,
        created=1_700_000_000_000_000,
        writer="test",
        back_to=None if back_to is None else Epoch(back_to),
        savepoint=savepoint,
    )


def put_epoch(store: Store, made: Manifest, *, paths: JobPaths = PATHS) -> None:
    """Write an epoch as its driver does: state first, then the manifest."""
    for name in sorted(made.objects()):
        store.create(name, b"rows")
    store.create(paths.manifest(made.epoch), encode(made))
