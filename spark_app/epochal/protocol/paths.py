"""The only place where object names are made and read.

    {namespace}/{job}/
      generations/{generation:06d}.json
      epochs/{epoch:010d}/manifest.json
      epochs/{epoch:010d}/committed.json
      epochs/{epoch:010d}/damaged.json
      state/{operator}/{table}/{epoch:010d}-{generation:06d}-{run:06d}-{part:06d}.parquet
      savepoints/{name}.json

Names from users are not escaped but refused unless they are lower-case labels: then they cannot hold a separator or a
dot-dot, two different names cannot become one (not even on a disk that ignores case), and people read in the store what
they wrote in their code.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from epochal.protocol.epochs import MAX_EPOCH, MAX_GENERATION, Epoch, Generation
from epochal.protocol.errors import InvalidNameError

MAX_RUN = MAX_PART = 10**6 - 1

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_KUBERNETES_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class GenerationName:
    generation: Generation


@dataclass(frozen=True, slots=True)
class ManifestName:
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class CommittedName:
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class DamagedName:
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class SavepointName:
    savepoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateName:
    """One Parquet object of one run.

    The epoch and generation are those that wrote it. They make the name unique without asking the store, and tell
    cleanup what may still be wanted by an epoch that is being made.
    """

    operator: str
    table: str
    epoch: Epoch
    generation: Generation
    run: int
    part: int


ObjectName = GenerationName | ManifestName | CommittedName | DamagedName | SavepointName | StateName

_PATTERNS = (
    re.compile(r"generations/(?P<generation>\d{6})\.json"),
    re.compile(r"epochs/(?P<epoch>\d{10})/(?P<what>manifest|committed|damaged)\.json"),
    re.compile(r"savepoints/(?P<savepoint>[^/]+)\.json"),
    re.compile(
        r"state/(?P<operator>[^/]+)/(?P<table>[^/]+)"
        r"/(?P<epoch>\d{10})-(?P<generation>\d{6})-(?P<run>\d{6})-(?P<part>\d{6})\.parquet"
    ),
)


def check_label(what: str, name: str) -> str:
    """Return ``name`` if it may be part of an object name; ``what`` is for the error: operator, table, savepoint."""
    if not _LABEL.fullmatch(name):
        raise InvalidNameError(
            f"{what} name {name!r} is not allowed: use 1 to 63 of a-z, 0-9, '-' and '_', "
            f"beginning and ending with a letter or digit{_suggestion(name)}"
        )
    return name


def check_kubernetes_label(what: str, name: str) -> str:
    """The same for names that are Kubernetes names, too: namespace and job. Without Kubernetes the same rule holds."""
    if not _KUBERNETES_LABEL.fullmatch(name):
        raise InvalidNameError(
            f"{what} name {name!r} is not allowed: use 1 to 63 of a-z, 0-9 and '-', "
            f"beginning and ending with a letter or digit{_suggestion(name)}"
        )
    return name


def _suggestion(name: str) -> str:
    candidate = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-")
    return f"; for example {candidate!r}" if candidate and candidate != name else ""


def _check_number(what: str, number: int, largest: int, smallest: int = 1) -> int:
    if not smallest <= number <= largest:
        raise InvalidNameError(f"{what} {number} is out of bounds: {smallest} to {largest}")
    return number


@dataclass(frozen=True, slots=True)
class JobPaths:
    """The names of one job's objects, all below ``prefix``."""

    namespace: str
    job: str

    def __post_init__(self) -> None:
        check_kubernetes_label("namespace", self.namespace)
        check_kubernetes_label("job", self.job)

    @property
    def prefix(self) -> str:
        return f"{self.namespace}/{self.job}/"

    @property
    def generations(self) -> str:
        return f"{self.prefix}generations/"

    @property
    def epochs(self) -> str:
        return f"{self.prefix}epochs/"

    @property
    def state(self) -> str:
        return f"{self.prefix}state/"

    @property
    def savepoints(self) -> str:
        return f"{self.prefix}savepoints/"

    def generation(self, generation: Generation) -> str:
        _check_number("generation", generation, MAX_GENERATION)
        return f"{self.generations}{generation:06d}.json"

    def manifest(self, epoch: Epoch) -> str:
        return f"{self._epoch(epoch)}/manifest.json"

    def committed(self, epoch: Epoch) -> str:
        return f"{self._epoch(epoch)}/committed.json"

    def damaged(self, epoch: Epoch) -> str:
        return f"{self._epoch(epoch)}/damaged.json"

    def before_epoch(self, epoch: Epoch) -> str:
        """Sorts right before all names of this epoch: where a listing starts."""
        return self._epoch(epoch)

    def savepoint(self, name: str) -> str:
        return f"{self.savepoints}{check_label('savepoint', name)}.json"

    def state_object(self, name: StateName) -> str:
        check_label("operator", name.operator)
        check_label("table", name.table)
        _check_number("epoch", name.epoch, MAX_EPOCH)
        _check_number("generation", name.generation, MAX_GENERATION)
        _check_number("run", name.run, MAX_RUN, 0)
        _check_number("part", name.part, MAX_PART, 0)
        return (
            f"{self.state}{name.operator}/{name.table}/"
            f"{name.epoch:010d}-{name.generation:06d}-{name.run:06d}-{name.part:06d}.parquet"
        )

    def _epoch(self, epoch: Epoch) -> str:
        _check_number("epoch", epoch, MAX_EPOCH)
        return f"{self.epochs}{epoch:010d}"

    def parse(self, name: str) -> ObjectName:
        """The reverse of the methods above. A name that none of them makes is an :class:`InvalidNameError`."""
        if not name.startswith(self.prefix):
            raise InvalidNameError(f"object {name!r} does not belong to job {self.prefix!r}")
        for pattern in _PATTERNS:
            if match := pattern.fullmatch(name, len(self.prefix)):
                parsed = _parsed(match.groupdict())
                if self.format(parsed) == name:
                    return parsed
        raise InvalidNameError(f"object {name!r} is not the name of an object of a job")

    def recognised(self, names: Iterable[str]) -> Iterator[ObjectName]:
        """Parse a listing; what is not ours is passed over (cleanup reports it)."""
        for name in names:
            with suppress(InvalidNameError):
                yield self.parse(name)

    def format(self, name: ObjectName) -> str:
        match name:
            case GenerationName(generation):
                return self.generation(generation)
            case ManifestName(epoch):
                return self.manifest(epoch)
            case CommittedName(epoch):
                return self.committed(epoch)
            case DamagedName(epoch):
                return self.damaged(epoch)
            case SavepointName(savepoint):
                return self.savepoint(savepoint)
            case StateName():
                return self.state_object(name)


def _parsed(groups: dict[str, str]) -> ObjectName:
    match groups:
        case {"operator": operator, "table": table, "run": run, "part": part}:
            return StateName(
                operator=operator,
                table=table,
                epoch=Epoch(int(groups["epoch"])),
                generation=Generation(int(groups["generation"])),
                run=int(run),
                part=int(part),
            )
        case {"what": "manifest", "epoch": epoch}:
            return ManifestName(Epoch(int(epoch)))
        case {"what": "damaged", "epoch": epoch}:
            return DamagedName(Epoch(int(epoch)))
        case {"epoch": epoch}:
            return CommittedName(Epoch(int(epoch)))
        case {"generation": generation}:
            return GenerationName(Generation(int(generation)))
        case _:
            return SavepointName(groups["savepoint"])
