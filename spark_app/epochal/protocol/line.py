"""The line of epochs that a job is on: which generations went back, and what they left behind."""

from collections.abc import Iterator

from epochal.protocol.documents import GenerationRecord, Manifest
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import DocumentError
from epochal.protocol.generations import Generations, Unreadable, newest_generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import StoreReader


class Line:
    """The line of epochs that the job is on.

    A generation that went back to an older epoch left the newer ones behind, whoever had made them; and with them the
    turns that were made on the way to them: one can go back to an epoch that was left behind before.
    """

    def __init__(self, store: StoreReader, paths: JobPaths, *, near: Generation | None = None) -> None:
        """``near``: a number that the newest generation is not far from, if one is known."""
        self._store = store
        self._paths = paths
        self._near = near
        self._generations: Generations | None = None

    def left_behind(self, manifest: Manifest) -> str | None:
        """Why this epoch is not on the line, if a later generation went back to one before it."""
        try:
            turn = self.turn_to(manifest)
        except DocumentError as error:
            # Its generation may have gone back. To guess that it did not could bring back what was left behind.
            return f"a later generation's record cannot be read ({error}); delete that object if it did not go back"
        if turn and turn.back_to is not None and turn.back_to < manifest.epoch:
            return f"generation {turn.generation} went back to epoch {turn.back_to}"
        return None

    def turn_to(self, manifest: Manifest) -> GenerationRecord | None:
        """The last turn on the way from now back to the generation that made this epoch."""
        last: GenerationRecord | None = None
        for record in self._turns(down_to=manifest.generation):
            if last is None or last.back_to is None or record.issued < last.back_to:
                last = record
            # Otherwise it was made after the epoch that was gone back to later: that epoch does not stand on it.
        return last

    def went_below(self, epoch: Epoch) -> bool:
        """Whether the newest generation that went back after this epoch's number was given out went below it. For
        epochs whose maker is not known."""
        try:
            turn = next((turn for turn in self._turns() if turn.issued >= epoch), None)
        except DocumentError:
            return False
        return turn is not None and turn.back_to is not None and turn.back_to < epoch

    def newest_turn(self) -> GenerationRecord | None:
        """The newest generation that went back."""
        try:
            return next(self._turns(), None)
        except DocumentError:
            return None

    def _turns(self, down_to: int = 0) -> Iterator[GenerationRecord]:
        """The generations after ``down_to`` that went back, newest first."""
        if self._generations is None:
            newest = newest_generation(self._store, self._paths, near=self._near)
            self._generations = Generations(self._store, self._paths, newest)
        for turn in self._generations.turns(down_to):
            if isinstance(turn, Unreadable):
                raise turn.error
            yield turn
