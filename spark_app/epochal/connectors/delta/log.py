"""Which files of a Delta table an epoch added, so that they can be taken back.

Every commit of a sink has the epoch's number as application transaction, so the table's log says which files it added.
delta-rs cannot remove single files, so the commit that removes them is written here: a version of the log that must not
be there yet, as Delta's protocol says.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from epochal.connectors.commit_ledger import Entry, newer_than
from epochal.protocol.control import StorageConfig
from epochal.protocol.errors import ObjectMissingError
from epochal.protocol.store import Exists, Store
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.persistence import store_of

TAKEN_BACK = "epochal.takenBack"
"""In the commit info of a commit that took back the epochs after the one that its transaction names."""

_UNDERSTOOD = {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features of a table that ask nothing of a commit which only removes whole files."""

Action = dict[str, Any]


class TakenError(Exception):
    """Somebody else has committed this version."""


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of one table, as one sink sees it."""

    table: DeltaTable
    uri: str
    options: Mapping[str, str]
    epoch_id: str

    def take_back(self, after: int, transactions: Mapping[str, int], info: Mapping[str, str]) -> int:
        """Commit that this sink's files of later epochs are removed, all or none, with these application transactions.
        Returns how many epochs there were; :class:`TakenError` if the table has changed since it was read."""
        self._check_table()
        later, files = self._later(after)
        now = time.time_ns() // 1_000_000
        actions: list[Action] = [
            {
                "commitInfo": {
                    "timestamp": now,
                    "operation": "DELETE",
                    "operationParameters": {},
                    "engineInfo": "epochal",
                    TAKEN_BACK: "true",
                    **info,
                }
            },
            *({"txn": {"appId": app, "version": to, "lastUpdated": now}} for app, to in transactions.items()),
            *({"remove": _removed(file, now)} for file in files),
        ]
        data = "\n".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions).encode()
        if isinstance(self._store().create(_name(self.table.version() + 1), data), Exists):
            raise TakenError(f"Delta table {self.uri}: another writer was quicker each time")
        return len({entry.epoch for entry in later if entry.what})

    def _later(self, after: int) -> tuple[list[Entry[list[Action]]], list[Action]]:
        """This sink's commits of later epochs that still count, and the files that they added."""
        changed: set[str] = set()
        later, complete = newer_than(after, self._own(changed))
        if not complete:
            raise self._refused(f"the log of the table no longer has the commits after epoch {after}")
        files = [file for entry in later for file in entry.what]
        if gone := [file for file in files if unquote(file["path"]) in changed]:
            raise self._refused(
                f"another writer has compacted, rewritten or deleted {len(gone)} of the {len(files)} files that epochs "
                f"after {after} added"
            )
        return later, files

    def _own(self, changed: set[str]) -> Iterator[Entry[list[Action]]]:
        """This sink's commits, newest first, with the files that each added. ``changed`` gets the files that others
        touched after that."""
        for version in range(self.table.version(), -1, -1):
            actions = self._actions(version)
            if actions is None:
                return
            epochs = [one["txn"]["version"] for one in actions if one.get("txn", {}).get("appId") == self.epoch_id]
            adds = [one["add"] for one in actions if "add" in one]
            took_back = any(TAKEN_BACK in one.get("commitInfo", {}) for one in actions)
            if epochs:
                yield Entry(epochs[-1], adds, took_back=took_back)
            else:
                removes = [one["remove"] for one in actions if "remove" in one]
                changed.update(unquote(file["path"]) for file in (*adds, *removes))
        yield Entry(0, [])  # the table's beginning: before it this sink has written nothing

    def _actions(self, version: int) -> list[Action] | None:
        try:
            text = self._store().get(_name(version)).decode()
        except ObjectMissingError:
            return None
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _check_table(self) -> None:
        """Whether a commit of ours would be one that every reader and writer of the table understands."""
        known = self.table.protocol()
        unknown = {*(known.writer_features or []), *(known.reader_features or [])} - _UNDERSTOOD
        if unknown or known.min_writer_version > 7:
            raise self._refused(f"it has features that are not known here ({', '.join(sorted(unknown))})")
        if self.table.metadata().configuration.get("delta.appendOnly") == "true":
            raise self._refused("it is append-only (delta.appendOnly)")
        if {**os.environ, **self.options}.get("AWS_S3_LOCKING_PROVIDER"):
            raise self._refused("its writers use a lock (AWS_S3_LOCKING_PROVIDER) instead of conditional requests")

    def _store(self) -> Store:
        uri = self.uri if "://" in self.uri else Path(self.uri).absolute().as_uri()
        place = StorageConfig(
            uri=uri.rstrip("/"), endpoint=self.options.get("AWS_ENDPOINT_URL"), region=self.options.get("AWS_REGION")
        )
        return store_of(place)

    def _refused(self, why: str) -> PipelineError:
        return PipelineError(
            f"Delta table {self.uri}: {why}, so nothing was taken back. Remove what the later epochs added yourself, "
            "or start without taking back"
        )


def _name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _removed(file: Action, now: int) -> Action:
    return {
        "path": file["path"],
        "deletionTimestamp": now,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": file.get("partitionValues", {}),
        "size": file["size"],
    }
