"""Which files of an Iceberg table an epoch added, so that they can be taken back: every entry of a table's manifests
has the snapshot that added it, and our snapshots say which epoch they are."""

from collections.abc import Iterator

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from epochal.connectors.commit_ledger import Entry, newer_than
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.errors import PipelineError

JOB, OPERATOR, EPOCH = "epochal.job", "epochal.operator", "epochal.epoch"
TAKEN_BACK = "epochal.taken-back"
"""In the summary of a snapshot that took back the epochs after the one it names."""


def later_snapshots(table: Table, ctx: OperatorContext, after: int) -> list[Entry[Snapshot]]:
    """This sink's snapshots of epochs after this one that still count."""
    refused = f"operator {ctx.name!r}: epochs after {after} cannot be taken back from Iceberg table {_name(table)}: "
    chain = list(ancestors_of(table.current_snapshot(), table.metadata))
    try:
        found, complete = newer_than(after, _own(chain, ctx, alone=_sinks(table, ctx) == 1))
    except _WhoseError:
        raise PipelineError(
            f"{refused}several sinks of this job write there, and the version that committed them did not note which "
            "snapshot is whose"
        ) from None
    # Who lets snapshots expire may cut the rest off, so that its oldest has no parent any more: a number tells.
    if not complete and not (chain and chain[-1].parent_snapshot_id is None and chain[-1].sequence_number == 1):
        raise PipelineError(f"{refused}snapshots that say which files they added have expired")
    return [entry for entry in found if _added(entry.what)]


class _WhoseError(Exception):
    """A snapshot of this job does not say which of its sinks it is of."""


def _sinks(table: Table, ctx: OperatorContext) -> int:
    """How many sinks of this job have written here."""
    begin = f"epochal.{ctx.job.name.replace('/', '.')}."
    return sum(name.startswith(begin) and name.endswith(".epoch") for name in table.properties)


def _own(chain: list[Snapshot], ctx: OperatorContext, *, alone: bool) -> Iterator[Entry[Snapshot]]:
    for snapshot in chain:
        said = _said(snapshot)
        if said.get(JOB) != ctx.job.name or EPOCH not in said:
            continue
        if OPERATOR not in said and not alone:  # one of an older version
            raise _WhoseError
        if said.get(OPERATOR, ctx.name) == ctx.name:
            yield Entry(int(said[EPOCH]), snapshot, took_back=TAKEN_BACK in said)


def files_of(table: Table, ctx: OperatorContext, snapshots: list[Entry[Snapshot]]) -> list[DataFile]:
    """The files that these snapshots added, as they are in the table now: all of them, or an error."""
    current, wanted = table.current_snapshot(), {entry.what.snapshot_id: entry.epoch for entry in snapshots}
    assert current is not None
    files = [
        entry.data_file
        for manifest in current.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.snapshot_id in wanted
    ]
    added = sum(_added(entry.what) for entry in snapshots)
    if len(files) != added:
        epochs = ", ".join(map(str, sorted(set(wanted.values()))))
        raise PipelineError(
            f"operator {ctx.name!r}: epochs {epochs} added {added} files to Iceberg table {_name(table)}, and "
            f"{len(files)} of them are left: another writer has compacted, rewritten or deleted the others, so none "
            "was taken back. Remove what these epochs added yourself, or start without taking back"
        )
    return files


def _added(snapshot: Snapshot) -> int:
    return int(_said(snapshot).get("added-data-files", 0))


def _said(snapshot: Snapshot) -> dict[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _name(table: Table) -> str:
    return ".".join(table.name())
