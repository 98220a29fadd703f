"""Parquet files, exactly once: an epoch's files appear after the epoch is published, whole, and never twice."""

import filecmp
import logging
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from pyspark.sql import DataFrame

from epochal.protocol.control import StorageConfig
from epochal.protocol.errors import AccessDeniedError, StoreRefusedError
from epochal.protocol.store import Exists
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.errors import OutsideError, PipelineError
from epochal.runtime.state.persistence import store_of

logger = logging.getLogger(__name__)

OWNER = "_epochal.json"
"""Says whose files these are. Readers leave out names that begin with an underscore."""
_FILE = "epoch-{:010d}-{:05d}.parquet"
_NAME = re.compile(r"epoch-(\d{10})-\d{5,}\.parquet")


class ParquetSink(SinkOperator):
    """Copies the epoch's pending objects to ``uri/epoch-NNNNNNNNNN-K.parquet``; within one bucket the store does.

    Names are the epoch's own, so committing again writes nothing new; rows of an epoch that is not published are not
    there. A file of that name with other content is somebody else's, and an error. The object ``_epochal.json`` says
    whose the place is, so that files are taken back only where this sink alone writes.
    """

    needs_frame = False
    can_take_back = True

    def __init__(self, output: StorageConfig, storage: StorageConfig) -> None:
        super().__init__()
        self._output = output
        self._storage = storage
        store_of(output)  # what cannot be opened is told before the start
        bucket = _bucket(output)
        self._shared = bucket if bucket == _bucket(storage) else None
        """The bucket that both the epochs and the results are in, until it refuses to copy."""

    def open(self, ctx: OperatorContext) -> None:
        owner = msgspec.json.encode({"job": ctx.job.name, "operator": ctx.name}) + b"\n"
        found = store_of(self._output).create(OWNER, owner)
        if isinstance(found, Exists):
            raise PipelineError(
                f"operator {ctx.name!r}: {self._output.uri} belongs to another job or sink: its {OWNER} says "
                f"{found.data.decode(errors='replace').strip()[:200]}. Files are named by epoch, so two sinks would "
                f"mistake each other's files for their own. Give this sink its own directory, or remove {OWNER} if the "
                "other one no longer writes there"
            )

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        """Newest first: wherever this is cut off, what is left is the output of a prefix."""
        store = store_of(self._output)
        names = [name for name in store.list_names("", after=_FILE.format(after, 0)) if _epoch_of(name) > after]
        store.delete(sorted(names, reverse=True))
        return len({_epoch_of(name) for name in names})

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        names = {name: _FILE.format(epoch, number) for number, name in enumerate(sorted(objects))}
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda name: self._copy(name, names[name]), names))

    def _copy(self, name: str, new_name: str) -> None:
        if self._output.uri.startswith("file://") and self._storage.uri.startswith("file://"):
            same = _link(
                Path(urlsplit(self._storage.uri).path) / name, Path(urlsplit(self._output.uri).path) / new_name
            )
        else:
            same = self._copied_by_store(name, new_name) or self._copied_through(name, new_name)
        if not same:
            raise OutsideError(
                f"{self._output.uri}: has a {new_name} with other content: another job writes there, or did before. "
                "Give this job a place of its own, or move these files away"
            )

    def _copied_by_store(self, name: str, new_name: str) -> bool:
        """False if the store does not copy, or something of that name is there already."""
        if self._shared is None:
            return False
        store, new_key = store_of(self._shared), _key(self._output, new_name)
        try:
            if store.exists(new_key):
                return False
            store.copy(_key(self._storage, name), new_key)
        except (StoreRefusedError, AccessDeniedError) as error:
            logger.info("Results go through the driver, because the store does not copy them: %s", error)
            self._shared = None
            return False
        return True

    def _copied_through(self, name: str, new_name: str) -> bool:
        """False if there is a file with other content."""
        data = store_of(self._storage).get(name)
        return not isinstance(store_of(self._output).create(new_name, data), Exists)


def _epoch_of(name: str) -> int:
    """0: no file of an epoch."""
    return int(found[1]) if (found := _NAME.fullmatch(name)) else 0


def _bucket(storage: StorageConfig) -> StorageConfig | None:
    parts = urlsplit(storage.uri)
    if parts.scheme not in ("s3", "gs", "az"):
        return None
    return StorageConfig(uri=f"{parts.scheme}://{parts.netloc}", endpoint=storage.endpoint, region=storage.region)


def _key(storage: StorageConfig, name: str) -> str:
    """The name of an object in its bucket."""
    return f"{urlsplit(storage.uri).path}/{name}".strip("/")


def _link(source: Path, target: Path) -> bool:
    """On one disk a second name for the same bytes; a copy, under another name first, where that cannot be. Whether the
    target has these bytes: False if there is another file."""
    try:
        if not target.exists():
            target.hardlink_to(source)
    except FileExistsError:
        pass
    except OSError:
        partial = target.with_name(f".{target.name}.partial")
        shutil.copyfile(source, partial)
        partial.rename(target)
    return target.samefile(source) or filecmp.cmp(target, source, shallow=False)
