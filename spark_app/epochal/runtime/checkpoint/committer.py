"""Sinks make a published epoch's rows visible: in one way, by the driver that published it or by a later one."""

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

from epochal.protocol.documents import AT_END, COMMITTED_TABLES, PENDING, CommitRecord, Manifest
from epochal.protocol.epochs import Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import newer_generation, record_commit
from epochal.protocol.store import Store
from epochal.runtime.checkpoint.patience import Patience
from epochal.runtime.dataflow.task import Task
from epochal.runtime.dataflow.two_phase_sink import COMMIT_PATIENCE, START_PATIENCE, BoundSink
from epochal.runtime.errors import DamagedStateError, FencedError, OperatorError, PipelineError
from epochal.runtime.state.persistence import Persistence
from epochal.runtime.state.stored_types import with_types_of
from epochal.runtime.state.tables import Run, union

T = TypeVar("T")


class Committer:
    """Commits the epochs of one job, as often as it is asked to."""

    def __init__(
        self,
        *,
        store: Store,
        paths: JobPaths,
        generation: Generation,
        persistence: Persistence,
        tasks: Mapping[str, Task],
        patience: Patience,
    ) -> None:
        self._store = store
        self._paths = paths
        self._generation = generation
        self._persistence = persistence
        self._tasks = tasks
        self._patience = patience

    def commit(
        self,
        manifest: Manifest,
        *,
        held: Mapping[str, list[Run]] | None = None,
        on_sink: Callable[[str], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Commit an epoch that is published. ``held``: by sink, the runs that its snapshot holds, if this driver made
        it; otherwise rows are read from the store. ``on_sink`` is told of each sink that has committed, ``on_wait`` of
        what a commit waits for.

        1. Every sink commits what the manifest has pending for it.
        2. Record that all have.

        Rows that are damaged in the store are a :class:`DamagedStateError`; if a newer generation begins while this
        waits, that is a :class:`FencedError`.
        """
        # Step 1
        for name, task in self._tasks.items():
            if isinstance(task.operator, BoundSink):
                runs = None if held is None else held.get(name, [])
                self._commit_sink(task, task.operator, manifest, runs, on_wait=on_wait)
                on_sink(name)
        # Step 2
        record = CommitRecord(epoch=manifest.epoch, generation=self._generation)
        self._patiently(
            "recording the commit",
            lambda: record_commit(self._store, self._paths, record),
            seconds=_at_most(COMMIT_PATIENCE, held),
            on_wait=on_wait,
        )

    def take_back_end(self, manifest: Manifest) -> None:
        """The job goes on after an epoch that was its end: sinks that can take back what they were given only because
        of that. Made again after a crash, it changes nothing.

        1. Take back all of the epoch.
        2. Commit what had come before the end.
        """
        for name, task in self._tasks.items():
            state = manifest.operators.get(name)
            if not (state and AT_END in state.tables and state.tables[AT_END].runs):
                continue
            if isinstance(task.operator, BoundSink) and task.operator.sink.can_take_back:
                # Step 1
                try:
                    with task.users_code():
                        task.operator.sink.take_back(manifest.epoch - 1, task.context)
                except PipelineError:
                    raise  # refused with words: no restart fixes that
                except Exception as error:
                    raise OperatorError(name, error) from error
                # Step 2
                self._commit_sink(task, task.operator, manifest, None, tables=(PENDING,))

    def _commit_sink(
        self,
        task: Task,
        bound: BoundSink,
        manifest: Manifest,
        held: list[Run] | None,
        *,
        tables: tuple[str, ...] = COMMITTED_TABLES,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        sink, state = bound.sink, manifest.operators.get(task.name)
        if state is None:
            return  # the sink is new: the epoch knows nothing of it
        # As the manifest has them: a commit that is made again after a crash knows no others.
        stored = [run for table in tables if table in state.tables for run in state.tables[table].runs]
        parts = [part for run in stored for part in run.parts]
        read: list[Run] = []
        try:
            if held is None and sink.needs_frame:
                declared = functools.partial(with_types_of, schema=bound.rows)
                read = [self._persistence.read(run, manifest.epoch, declared=declared).hold() for run in stored]
            elif held is None:
                # Reading a frame looks at its objects; nobody has looked at those that the sink itself will read.
                self._persistence.check(parts)
            frame = union(run.frame for run in held or read) if sink.needs_frame else None
            objects = [part.object for part in parts]

            def commit() -> None:
                with task.users_code():
                    sink.commit(manifest.epoch, frame, objects, task.context)

            patience = _at_most(sink.commit_patience, held)
            self._patiently(
                f"sink {task.name!r}",
                commit,
                seconds=patience,
                on_wait=on_wait,
                progress=lambda: sink.commit_progress,
            )
        except (DamagedStateError, FencedError):
            raise
        except Exception as error:
            if held is None:
                self._persistence.check(parts)  # what is damaged can never be committed
            raise OperatorError(task.name, error) from error
        finally:
            for run in read:
                run.release()
        bound.pending.committed(held or [], sum(part.rows for part in parts))

    def _patiently(
        self,
        what: str,
        call: Callable[[], T],
        *,
        seconds: float,
        on_wait: Callable[[str], None],
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        return self._patience.call(
            what, call, seconds=seconds, on_wait=on_wait, before_retry=self._check_fence, progress=progress
        )

    def _check_fence(self) -> None:
        """While this driver waited, another one may have begun and taken the epoch back."""
        if fenced := newer_generation(self._store, self._paths, self._generation):
            raise FencedError(fenced.message)


def _at_most(seconds: float, held: object | None) -> float:
    """How long to wait. Rows that are not held are those of a restored epoch: then a generation is starting."""
    return min(seconds, START_PATIENCE) if held is None else seconds
