"""The generations of a job, as its store shows them. What that costs does not grow with how many there were.

Names sort by number, so one page of a listing says whether there is any generation after a number; the newest is found
by doubling and halving. Each record says which generation before it went back last, so nobody reads those in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from epochal.protocol.documents import GenerationRecord, decode
from epochal.protocol.epochs import MAX_GENERATION, Generation
from epochal.protocol.errors import DocumentError, NewerDocumentError, ObjectMissingError
from epochal.protocol.paths import GenerationName, JobPaths
from epochal.protocol.store import PAGE, StoreReader

NO_GENERATION = Generation(0)
END = Generation(MAX_GENERATION + 1)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A generation's record that cannot be read: it may have gone back."""

    generation: Generation
    error: DocumentError | NewerDocumentError


@dataclass(frozen=True, slots=True)
class GenerationPage:
    """Some generations, oldest first. ``last``: there are none after them."""

    generations: tuple[Generation, ...]
    last: bool


def page_of_generations(store: StoreReader, paths: JobPaths, *, after: int = NO_GENERATION) -> GenerationPage:
    """The first generations after this one: one request, unless a whole page of other objects stands before them.

    A bucket may hold what is not ours: a folder's marker, a copy. It takes its place on a page, so that what is left
    without it does not say whether the page was full."""
    begin = paths.generation(Generation(after)) if after else None
    while True:
        names = store.list_page(paths.generations, after=begin)
        found = tuple(name.generation for name in paths.recognised(names) if isinstance(name, GenerationName))
        last = len(names) < PAGE
        if found or last:
            return GenerationPage(found, last)
        begin = names[-1]


def newest_generation(
    store: StoreReader, paths: JobPaths, *, near: Generation | None = None, before: Generation = END
) -> Generation:
    """The newest that has a record (0: none), of those before ``before``. ``near``: a number that the newest is not far
    from; then it mostly takes one request. Otherwise it takes one if there is no more than a page, and about twice the
    logarithm of the number of pages if there is."""
    low, high = NO_GENERATION, before

    def look(after: int) -> bool:
        """Narrow the search down; whether it is over."""
        nonlocal low, high
        page = page_of_generations(store, paths, after=after)
        found = [generation for generation in page.generations if after < generation < high]
        if found:
            low = max(found)
            return page.last or len(found) < len(page.generations)
        high = Generation(min(high, after + 1))
        return high <= low + 1

    if near is not None and near > 2 and look(near - 2):
        return low
    if low == NO_GENERATION and (look(NO_GENERATION) or low == NO_GENERATION):
        return low
    step = 0
    while high > low + 1 and not look(low if high - low <= PAGE else min(low + step, (low + high) // 2)):
        step = max(PAGE, 2 * step)
    return low


def newest_number(store: StoreReader, paths: JobPaths, *, near: Generation | None = None) -> Generation:
    """The highest number that is used up, also if nobody began with it."""
    newest = newest_generation(store, paths, near=near)
    last = Generations(store, paths, newest).read(newest) if newest else None
    return max(newest, (isinstance(last, GenerationRecord) and last.retired_until) or NO_GENERATION)


class Generations:
    """Reads records newest first, each once. ``newest`` is where it begins."""

    def __init__(self, store: StoreReader, paths: JobPaths, newest: Generation) -> None:
        self.newest = newest
        self._store = store
        self._paths = paths
        self._records: dict[Generation, GenerationRecord | Unreadable | None] = {}

    def turns(self, down_to: int = NO_GENERATION) -> Iterator[GenerationRecord | Unreadable]:
        """Those after ``down_to`` that went back or may have, newest first."""
        at = self.newest
        while at > down_to:
            record = self.read(at)
            if record is None:
                at = newest_generation(self._store, self._paths, before=at)
                continue
            if isinstance(record, Unreadable) or record.back_to is not None:
                yield record
            said = None if isinstance(record, Unreadable) else record.last_turn
            at = Generation(at - 1) if said is None else said  # records of earlier releases do not say it

    def read(self, generation: Generation) -> GenerationRecord | Unreadable | None:
        """None if it is not there: it never began, or cleanup took it: it is older than every epoch that is kept."""
        if generation not in self._records:
            name = self._paths.generation(generation)
            record: GenerationRecord | Unreadable | None
            try:
                record = decode(name, self._store.get(name), GenerationRecord)
                if record.generation != generation:
                    problem = (
                        f"holds generation {record.generation}, not {generation}: the object was copied or renamed"
                    )
                    record = Unreadable(generation, DocumentError(name, problem))
            except ObjectMissingError:
                record = None
            except (DocumentError, NewerDocumentError) as error:
                record = Unreadable(generation, error)
            self._records[generation] = record
        return self._records[generation]

    def last_turn(self) -> GenerationRecord | Unreadable | None:
        return next(self.turns(), None)


def repeats(record: GenerationRecord, turn: GenerationRecord) -> bool:
    """Whether it goes back to where ``turn`` did, as the next driver does if one dies while it goes back. Then that one
    matters to nobody any more, and is passed over."""
    return (
        record.back_to is not None
        and (record.back_to, record.savepoint, record.unasked) == (turn.back_to, turn.savepoint, turn.unasked)
        and record.issued >= turn.issued >= record.back_to
    )
