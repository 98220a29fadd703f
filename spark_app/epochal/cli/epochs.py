"""What a store tells of a job's epochs; read from manifests, so it needs neither driver nor cluster."""

from collections.abc import Iterator
from dataclasses import dataclass

from epochal.cli.errors import UserError
from epochal.cli.targets import Target
from epochal.control.reconcile import bytes_written
from epochal.protocol.documents import Manifest, Seal
from epochal.protocol.epochs import Epoch
from epochal.protocol.errors import DocumentError, NewerDocumentError, ObjectMissingError
from epochal.protocol.resolve import list_epochs, read_epoch, read_savepoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One epoch as it stands in the store. ``problem`` is set if its manifest cannot be used."""

    epoch: Epoch
    state: str
    manifest: Manifest | None = None
    problem: str = ""

    @property
    def bytes(self) -> int:
        return bytes_written(self.manifest) if self.manifest else 0


def rows(target: Target) -> Iterator[EpochRow]:
    """Newest first. Each costs one request, so a caller that has enough stops."""
    found = list_epochs(target.store, target.paths)
    for epoch in sorted(found.manifests, reverse=True):
        try:
            document = read_epoch(target.store, target.paths, epoch)
        except (DocumentError, ObjectMissingError) as error:
            yield EpochRow(epoch=epoch, state="Unreadable", problem=str(error))
            continue
        except NewerDocumentError as error:
            yield EpochRow(epoch=epoch, state="Newer", problem=str(error))
            continue
        if isinstance(document, Seal):
            yield EpochRow(epoch=epoch, state="Failed", problem=f"given up by generation {document.generation}")
        else:
            state = "Ready" if epoch in found.committed else "Committing"
            yield EpochRow(epoch=epoch, state=state, manifest=document)


def chosen(target: Target, epoch: int | None, savepoint: str | None = None) -> Manifest:
    """The manifest of this epoch or savepoint; of the newest epoch that can be read if none is named."""
    if epoch is not None and savepoint is not None:
        raise UserError("give --epoch or --savepoint, not both")
    if savepoint is not None:
        try:
            return read_savepoint(target.store, target.paths, savepoint)
        except ObjectMissingError as error:
            raise UserError(f"there is no savepoint {savepoint}: `epochal savepoint list` shows them") from error
        except (DocumentError, NewerDocumentError) as error:
            raise UserError(str(error)) from error
    if epoch is not None:
        try:
            document = read_epoch(target.store, target.paths, Epoch(epoch))
        except ObjectMissingError as error:
            raise UserError(f"there is no epoch {epoch}: `epochal checkpoints` shows those that are there") from error
        except (DocumentError, NewerDocumentError) as error:
            raise UserError(str(error)) from error
        if isinstance(document, Seal):
            raise UserError(f"epoch {epoch} failed: it stored nothing")
        return document
    for row in rows(target):
        if row.manifest is not None:
            return row.manifest
        if row.state == "Newer":
            raise UserError(row.problem)  # an older one would be taken for the newest
    raise UserError(f"{target.store.uri} holds no epoch of {target.paths.prefix.rstrip('/')}")
