"""Watches a history from outside and knows what must never be seen. Its view is made of effects alone: what stands in
the store, what the sink was given, what the controller wrote down."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import obstore

from epochal.protocol.decision import Action, Complete, Record, SendBarrier, Stop
from epochal.protocol.documents import GenerationRecord, Manifest, Seal, decode_any
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, Generation
from epochal.protocol.errors import InvalidNameError
from epochal.protocol.paths import GenerationName, JobPaths, ManifestName
from epochal.protocol.publish import Fenced
from epochal.protocol.resolve import Found, NothingToRestore, Resolution, StartEmpty
from epochal.protocol.start import WouldRepeat
from epochal.protocol.store import Store
from tests.protocol.stepping import SteppedStore

NOBODY = Generation(0)

Rows = tuple[int, int]


def payload(manifest: Manifest) -> Rows:
    """The rows of the source that an epoch's output stands for."""
    transaction = manifest.operators["sink"].transaction
    assert transaction is not None
    return int(transaction["from"]), int(transaction["to"])


@dataclass(slots=True)
class Oracle:
    """``tip`` is the epoch that the job stands on: the newest one published, or the one gone back to since."""

    store: SteppedStore
    paths: JobPaths
    published: dict[Epoch, Manifest] = field(default_factory=dict)
    sealed: set[Epoch] = field(default_factory=set)
    corrupted: set[Epoch] = field(default_factory=set)
    savepoints: dict[str, Manifest] = field(default_factory=dict)
    sink: dict[Epoch, Rows] = field(default_factory=dict)
    sink_of: Generation = NOBODY
    left: set[Epoch] = field(default_factory=set)
    returned: bool = False
    """Whether the job ever stood on an epoch again that it had left behind: its output is taken back by then."""
    tip: Epoch = NO_EPOCH
    claimed: dict[Generation, GenerationRecord] = field(default_factory=dict)
    turned_by: Generation = NOBODY
    started: Generation = NOBODY
    barriers: dict[Epoch, tuple[Generation, bool]] = field(default_factory=dict)
    min_epoch: Epoch = FIRST_EPOCH
    stop_wished: bool = False
    view: Store = field(init=False)

    def __post_init__(self) -> None:
        # Looking on is no step of anybody.
        self.view = Store(self.store._backend, uri=self.store.uri)
        self.store.after_request = self.saw_request

    # --- the store

    def saw_request(self, kind: str, name: str) -> None:
        if kind != "create":
            return
        try:
            parsed = self.paths.parse(name)
        except InvalidNameError:
            return
        if isinstance(parsed, ManifestName) and parsed.epoch not in self.published:
            document = decode_any(name, self.view.get(name))
            if isinstance(document, Manifest):
                self._saw_manifest(document)
            else:
                assert isinstance(document, Seal)
                self.sealed.add(document.epoch)
        elif isinstance(parsed, GenerationName) and parsed.generation not in self.claimed:
            record = decode_any(name, self.view.get(name))
            assert isinstance(record, GenerationRecord)
            self._saw_claim(record)

    def _saw_manifest(self, manifest: Manifest) -> None:
        epoch = manifest.epoch
        if epoch < self.min_epoch:
            # Cleanup has taken its seal away. Below min_epoch there are no epochs: nobody restores it, and publish does
            # not call it published, so its output is not committed either (saw_commit would notice).
            return
        assert manifest.generation >= self.started, (
            f"a fenced generation publishes nothing: {manifest.generation} published {epoch} after {self.started} began"
        )
        assert self.barriers.get(epoch, (None,))[0] == manifest.generation, f"epoch {epoch} was not asked for"
        missing = manifest.objects() - self.names()
        assert not missing, f"epoch {epoch} was published without {missing}"
        rows = sorted(
            (run.min_time or 0, run.max_time or 0) for run in manifest.operators["aggregate"].tables["sums"].runs
        )
        at = 0
        for first, end in rows:
            assert first == at, f"epoch {epoch}: state holds a row twice or not at all: {rows}"
            at = end
        first, end = payload(manifest)
        assert at == end, f"epoch {epoch}: state and output differ"
        parent_end = payload(self.published[manifest.parent])[1] if manifest.parent else 0
        assert first == parent_end, f"epoch {epoch}: output does not go on where its parent's ended"
        self.published[epoch] = manifest
        if manifest.generation >= self.turned_by:
            self.tip = epoch

    def _saw_claim(self, record: GenerationRecord) -> None:
        self.claimed[record.generation] = record
        if record.back_to is not None and record.generation > max(self.turned_by, self.started):
            self.turned_by = record.generation
            self._move(record.back_to)

    def names(self) -> set[str]:
        pages = obstore.list(self.store._backend, self.paths.prefix)
        return {meta["path"] for page in pages for meta in page}

    def ancestry(self, epoch: Epoch) -> Iterator[Epoch]:
        while epoch:
            yield epoch
            epoch = self.published[epoch].parent

    def _move(self, epoch: Epoch) -> None:
        self.left |= set(self.published) - set(self.ancestry(epoch))
        self.returned |= bool(self.left & set(self.ancestry(epoch)))
        self.left -= set(self.ancestry(epoch))
        self.tip = epoch

    # --- drivers

    def saw_start(self, generation: Generation, answer: Resolution | WouldRepeat | Fenced) -> None:
        """Called in the moment in which ``start_generation`` returns."""
        assert not isinstance(answer, WouldRepeat)
        if isinstance(answer, Fenced):
            used = [record.retired_until or record.generation for record in self.claimed.values()]
            assert any(number >= generation for number in used), "fenced by nobody"
            return
        if generation < max(self.claimed):
            return  # a zombie already: what it has found may be out of date
        self.started = generation
        names = self.names()
        usable = [
            epoch
            for epoch in self.ancestry(self.tip)
            if epoch >= self.min_epoch and epoch not in self.corrupted and self.paths.manifest(epoch) in names
        ]
        best = usable[0] if usable else NO_EPOCH
        match answer:
            case Found(manifest=manifest):
                assert manifest.epoch in set(self.ancestry(self.tip)), (
                    f"generation {generation} restored {manifest.epoch}, which is not on the line of {self.tip}"
                )
                assert manifest.epoch >= best, f"restored {manifest.epoch}, though {best} was there"
                assert not manifest.objects() - names, f"epoch {manifest.epoch} was restored without its objects"
                if manifest.epoch != self.tip:
                    self._move(manifest.epoch)
            case StartEmpty():
                assert self.tip == NO_EPOCH, f"generation {generation} started empty, though epoch {self.tip} was there"
            case NothingToRestore(message):
                assert not best, f"epoch {best} could have been restored: {message}"
                assert self.tip, f"nothing to restore, but there was nothing: {message}"

    def saw_sink_open(self, generation: Generation) -> None:
        """From here on the sink takes nothing of older generations."""
        self.sink_of = max(self.sink_of, generation)

    def saw_take_back(self, generation: Generation, after: Epoch) -> None:
        if generation < self.sink_of:
            return
        for epoch in [epoch for epoch in self.sink if epoch > after]:
            assert epoch not in set(self.ancestry(self.tip)), f"output of epoch {epoch}, on the line, was taken back"
            del self.sink[epoch]

    def saw_commit(self, generation: Generation, epoch: Epoch, rows: Rows) -> None:
        if generation < self.sink_of:
            return
        assert epoch in self.published, f"output of epoch {epoch} was committed, but the epoch does not exist"
        assert self.sink.setdefault(epoch, rows) == rows, f"two outputs were committed for epoch {epoch}"
        assert epoch in self.left or epoch in set(self.ancestry(self.tip)), f"epoch {epoch} is not on the line"

    # --- the controller

    def saw_decision(self, old: Record, new: Record, action: Action, *, cleanup_exists: bool) -> None:
        assert new.issued >= old.issued, "an epoch number went back"
        assert new.min_epoch >= old.min_epoch, "min_epoch went back"
        self.min_epoch = new.min_epoch
        if isinstance(action, SendBarrier) and action.barrier.epoch not in self.barriers:
            self._saw_start_of(old, action, cleanup_exists=cleanup_exists)
        if new.last_checkpoint != old.last_checkpoint:
            assert old.in_flight is not None, "last_checkpoint moves on completion only"
            assert old.in_flight.epoch in self.published, "last_checkpoint moved for an epoch that does not exist"
        if isinstance(action, Complete):
            assert action.epoch in self.published
        if old.stop and not new.stop:
            assert new.stopped, "the wish to stop was lost"
        if isinstance(action, Stop) and not action.forced:
            assert old.in_flight is not None
            assert old.in_flight.then_stop, "stopped with an epoch that was not made for it"
            assert old.in_flight.epoch in self.published

    def _saw_start_of(self, old: Record, action: SendBarrier, *, cleanup_exists: bool) -> None:
        epoch, then_stop = action.barrier.epoch, action.barrier.then_stop
        assert old.in_flight is None, "two checkpoints in flight"
        assert epoch > max([NO_EPOCH, *self.barriers, *self.published]), f"epoch {epoch} was used before"
        assert then_stop or not cleanup_exists, "a checkpoint started while a cleanup existed"
        assert then_stop == old.stop, "a stop was wished for, and another checkpoint started"
        self.barriers[epoch] = (action.generation, then_stop)

    # --- after every step

    def check_kept(self, min_epoch: Epoch) -> None:
        names = self.names()
        for epoch, manifest in self.published.items():
            if epoch >= min_epoch:
                assert self.paths.manifest(epoch) in names, f"epoch {epoch} is kept, and its manifest is gone"
                assert not manifest.objects() - names, f"epoch {epoch} is kept, and lost {manifest.objects() - names}"
        for name, manifest in self.savepoints.items():
            assert self.paths.savepoint(name) in names, f"savepoint {name} is gone"
            assert not manifest.objects() - names, f"savepoint {name} lost {manifest.objects() - names}"

    @property
    def to_be_put_right(self) -> bool:
        """Whether the next generation has to read rows again, or to take output back."""
        line = set(self.ancestry(self.tip))
        return not line.isdisjoint(self.corrupted) or not line.issuperset(self.sink)

    def check_exactly_once(self) -> None:
        """At the end: every row of the line's epochs came out once. With a sink that takes back, no job goes back to
        what it left behind (``start_generation`` refuses that); those of this model's that do are left out."""
        if self.returned:
            return
        at = payload(self.published[self.tip])[1] if self.tip else 0
        for epoch in self.ancestry(self.tip):
            assert epoch in self.sink, f"epoch {epoch} is on the line, and its output never came out"
            first, end = self.sink[epoch]
            assert end == at, f"epoch {epoch}: rows {end} to {at} came out twice or not at all"
            at = first
        assert at == 0
        doubled = set(self.sink) - set(self.ancestry(self.tip))
        assert not doubled, f"epochs {doubled} came out, and so did their rows elsewhere"
