"""Parquet files, exactly once: an epoch's files appear after the epoch is published, whole, and never twice."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import DataFrame

from epochal.protocol.control import StorageConfig
from epochal.protocol.store import Store
from epochal.runtime.operator import OperatorContext
from epochal.runtime.pending import PendingSink
from epochal.runtime.persistence import store_of


class ParquetSink(PendingSink):
    """Copies the epoch's pending objects to ``uri/epoch-NNNNNNNNNN-K.parquet``.

    Names are the epoch's own, so committing again writes nothing new; rows of an epoch that is not published are not
    there.
    """

    needs_frame = False

    def __init__(self, output: StorageConfig, storage: StorageConfig) -> None:
        super().__init__()
        self._output = output
        self._storage = storage
        store_of(output)  # what cannot be opened is told before the start

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> int:
        names = {name: f"epoch-{epoch:010d}-{number:05d}.parquet" for number, name in enumerate(sorted(objects))}
        source, target = store_of(self._storage), store_of(self._output)
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda name: self._copy(source, name, target, names[name]), names))
        return len(names)

    def _copy(self, source: Store, name: str, target: Store, new_name: str) -> None:
        if self._output.uri.startswith("file://") and self._storage.uri.startswith("file://"):
            _link(Path(urlsplit(self._storage.uri).path) / name, Path(urlsplit(self._output.uri).path) / new_name)
        else:
            target.create(new_name, source.get(name))


def _link(source: Path, target: Path) -> None:
    """On one disk a second name for the same bytes; a copy, under another name first, where that cannot be."""
    if target.exists():
        return
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:
        partial = target.with_name(f".{target.name}.partial")
        shutil.copyfile(source, partial)
        partial.rename(target)
