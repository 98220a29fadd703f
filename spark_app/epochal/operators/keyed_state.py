"""What a keyed function works with: the state of one key, its timers, and the time.

Everything here is plain Python and knows no Spark: it runs inside executors, one key at a time. State is read before
the function is called and written after it, so a call costs no request to anything.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from epochal.runtime.durations import Duration, to_micros
from epochal.runtime.errors import PipelineError

Key = tuple[Any, ...]
"""The values of the key columns, in the order in which they were named."""

TimerKind = Literal["event", "processing"]

_START = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(micros: int) -> datetime:
    """A moment; one past the calendar's end (the watermark when an input has ended) is the calendar's end."""
    try:
        return _START + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if micros > 0 else datetime.min.replace(tzinfo=UTC)


def from_datetime(at: datetime) -> int:
    """Microseconds since 1970. A time without a zone is UTC, as Spark's ``timestamp_ntz`` is here."""
    return (at.replace(tzinfo=at.tzinfo or UTC) - _START) // timedelta(microseconds=1)


# --- how state is declared ---


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """State as it is declared: its kind, Spark types as text, and how long a value lives (microseconds)."""

    kind: Literal["value", "list", "map"]
    value: str
    key: str | None = None
    ttl: int | None = None


def value_state(schema: str, *, ttl: Duration | None = None) -> StateSpec:
    """One value a key, of a Spark type such as ``"long"`` or ``"struct<at: timestamp, amount: double>"``. With ``ttl``
    it is gone so long after it was last written, by the clock."""
    return StateSpec(kind="value", value=schema, ttl=_ttl(ttl))


def list_state(schema: str, *, ttl: Duration | None = None) -> StateSpec:
    """A list a key. With ``ttl`` each element is gone so long after it was added."""
    return StateSpec(kind="list", value=schema, ttl=_ttl(ttl))


def map_state(key: str, value: str, *, ttl: Duration | None = None) -> StateSpec:
    """A map a key. With ``ttl`` each entry is gone so long after it was last written."""
    return StateSpec(kind="map", value=value, key=key, ttl=_ttl(ttl))


def _ttl(ttl: Duration | None) -> int | None:
    if ttl is None:
        return None
    micros = to_micros(ttl)
    if micros <= 0:
        raise PipelineError(f"a ttl must be positive, not {ttl!r}: leave it out to keep state forever")
    return micros


# --- state at work ---


class _Held:
    """What the kinds of state share: ``now`` decides what is expired, and whether there is anything to write."""

    def __init__(self, spec: StateSpec, now: int) -> None:
        self._now = now
        self._expires = None if spec.ttl is None else now + spec.ttl
        self.changed = False

    def _alive(self, entry: Mapping[str, Any]) -> bool:
        return entry["expires"] is None or entry["expires"] > self._now


class ValueState(_Held):
    """One value."""

    def __init__(self, spec: StateSpec, now: int, stored: dict[str, Any] | None) -> None:
        super().__init__(spec, now)
        self._entry = stored if stored is not None and self._alive(stored) else None

    def exists(self) -> bool:
        return self._entry is not None

    def get(self, default: Any = None) -> Any:
        """The value. After changing what this returns call :meth:`update`, or the change may not be kept."""
        return default if self._entry is None else self._entry["value"]

    def update(self, value: Any) -> None:
        self._entry = {"value": value, "expires": self._expires}
        self.changed = True

    def clear(self) -> None:
        self.changed = self.changed or self._entry is not None
        self._entry = None

    def stored(self) -> tuple[Any, list[dict[str, Any]]]:
        return self._entry, [] if self._entry is None else [self._entry]


class ListState(_Held):
    """A list."""

    def __init__(self, spec: StateSpec, now: int, stored: list[dict[str, Any]] | None) -> None:
        super().__init__(spec, now)
        self._entries = [entry for entry in stored or () if self._alive(entry)]

    def get(self) -> list[Any]:
        """A list of its own: changing it changes no state."""
        return [entry["value"] for entry in self._entries]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, value: Any) -> None:
        self._entries.append({"value": value, "expires": self._expires})
        self.changed = True

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def update(self, values: Iterable[Any]) -> None:
        """Put other values in place of all that are there."""
        self.clear()
        self.extend(values)

    def clear(self) -> None:
        self.changed = self.changed or bool(self._entries)
        self._entries = []

    def stored(self) -> tuple[Any, list[dict[str, Any]]]:
        return self._entries or None, self._entries


_NAN = float("nan")


def _one_key(key: Any) -> Any:
    """A map's key as Spark has it: there is one not-a-number, which Python does not find to be itself, and one zero."""
    if not isinstance(key, float):
        return key
    return _NAN if key != key else key + 0.0


class MapState(_Held, MutableMapping[Any, Any]):
    """A map; used like a dict."""

    def __init__(self, spec: StateSpec, now: int, stored: list[dict[str, Any]] | None) -> None:
        super().__init__(spec, now)
        self._entries = {_one_key(entry["key"]): entry for entry in stored or () if self._alive(entry)}

    def __getitem__(self, key: Any) -> Any:
        return self._entries[_one_key(key)]["value"]

    def __setitem__(self, key: Any, value: Any) -> None:
        key = _one_key(key)
        self._entries[key] = {"key": key, "value": value, "expires": self._expires}
        self.changed = True

    def __delitem__(self, key: Any) -> None:
        del self._entries[_one_key(key)]
        self.changed = True

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self.changed = self.changed or bool(self._entries)
        self._entries = {}

    def stored(self) -> tuple[Any, list[dict[str, Any]]]:
        entries = list(self._entries.values())
        return entries or None, entries


State = ValueState | ListState | MapState
S = TypeVar("S", ValueState, ListState, MapState)

_KINDS: dict[str, Callable[..., State]] = {"value": ValueState, "list": ListState, "map": MapState}


# --- timers and the context ---


@dataclass(frozen=True, slots=True, order=True)
class Timer:
    """A timer that fires: when it was set for, and by which time."""

    at: datetime
    kind: TimerKind = "event"


@dataclass(slots=True)
class _Timers:
    """One key's timers of one kind, in order."""

    times: list[int] = field(default_factory=list)
    changed: bool = False

    def register(self, at: int) -> None:
        if at not in self.times:
            insort(self.times, at)
            self.changed = True

    def delete(self, at: int) -> None:
        if at in self.times:
            self.times.remove(at)
            self.changed = True


@dataclass(frozen=True, slots=True)
class Now:
    """The time, the same for all keys of a batch: by the clock, and by the watermark if there is one."""

    clock: int
    watermark: int | None
    ended: bool = False
    """Whether the input has come to its end: no watermark comes after this."""


class KeyContext:
    """What a keyed function may use; it belongs to one key and one call.

    ``now`` is when the batch began, by the clock; ``watermark`` is the operator's, or None while nothing has come.
    """

    def __init__(self, key: Key, specs: Mapping[str, StateSpec], now: Now, stored: Mapping[str, Any] | None) -> None:
        self.key = key
        self.now = to_datetime(now.clock)
        self.watermark = None if now.watermark is None else to_datetime(now.watermark)
        self._time = now
        kept = (stored or {}).get("state") or {}
        self._states = {name: _KINDS[spec.kind](spec, now.clock, kept.get(name)) for name, spec in specs.items()}
        self._timers: dict[TimerKind, _Timers] = {
            "event": _Timers(list((stored or {}).get("event_timers") or ())),
            "processing": _Timers(list((stored or {}).get("processing_timers") or ())),
        }
        self._was_stored = stored is not None

    # --- state ---

    def value(self, name: str) -> ValueState:
        return self._state(name, ValueState)

    def list(self, name: str) -> ListState:
        return self._state(name, ListState)

    def map(self, name: str) -> MapState:
        return self._state(name, MapState)

    def _state(self, name: str, kind: type[S]) -> S:
        state = self._states.get(name)
        if not isinstance(state, kind):
            declared = ", ".join(f"{key} ({type(one).__name__})" for key, one in self._states.items()) or "none"
            raise PipelineError(f"there is no {kind.__name__} {name!r} here: state= declares {declared}")
        return state

    # --- timers ---

    def register_timer(self, at: datetime, *, kind: TimerKind = "event") -> None:
        """Let ``on_timer`` be called when the watermark (or, of kind ``"processing"``, the clock) has reached ``at``.
        A time is registered once, however often this is called."""
        self._timers[kind].register(from_datetime(at))

    def delete_timer(self, at: datetime, *, kind: TimerKind = "event") -> None:
        """Forget the timer of that time, if there is one."""
        self._timers[kind].delete(from_datetime(at))

    def timers(self, kind: TimerKind = "event") -> tuple[datetime, ...]:
        """The times that are registered, the next one first."""
        return tuple(map(to_datetime, self._timers[kind].times))

    def clear(self) -> None:
        """Forget all state and all timers of this key."""
        for state in self._states.values():
            state.clear()
        for kind in self._timers.values():
            kind.changed = kind.changed or bool(kind.times)
            kind.times.clear()

    # --- inside ---

    def due(self, kind: TimerKind) -> Iterator[Timer]:
        """Take the timers that are due, the earliest first.

        One that is registered meanwhile for a later time that is due, too, comes in its turn; at the end of the input
        it does not, or a timer that always registers the next one would never come to an end. By the clock, only what
        was due at the beginning.
        """
        timers = self._timers[kind]
        until = self._time.clock if kind == "processing" else self._time.watermark
        if until is None:
            return
        chained = kind == "event" and not self._time.ended
        first = [at for at in timers.times if at <= until]
        last: int | None = None
        while True:
            among = timers.times if chained else [at for at in first if at in timers.times]
            at = next((one for one in among if one <= until and (last is None or one > last)), None)
            if at is None:
                return
            timers.delete(at)
            last = at
            yield Timer(to_datetime(at), kind)

    def to_store(self) -> dict[str, Any] | None:
        """The key's row of state, or None if it is as it was. A row with nothing in it has expired from the start."""
        if not (any(one.changed for one in self._states.values()) or any(one.changed for one in self._timers.values())):
            return None
        state: dict[str, Any] = {}
        entries: list[dict[str, Any]] = []
        for name, one in self._states.items():
            state[name], held = one.stored()
            entries += held
        timers = {f"{kind}_timers": one.times or None for kind, one in self._timers.items()}
        if not entries and not any(timers.values()) and not self._was_stored:
            return None
        ends = [entry["expires"] for entry in entries]
        lives_on = any(timers.values()) or None in ends
        return {"state": state, "expires": None if lives_on else max(ends, default=0), **timers}


class KeyedFunction:
    """A function of one key's rows, with state and timers. Subclass it, and override what you need.

    A class is instantiated once in each executor's task, an instance is sent to them as it is: keep nothing in
    attributes but what can be made anew (a model, a connection), for the next batch may be another task's.
    """

    def open(self) -> None:
        """Called once before the first key of a task."""

    def process(self, key: Key, rows: Any, ctx: KeyContext) -> Any:
        """One key's rows of the batch, as a ``pyarrow.Table``, in the order of their event times. Yield (or return)
        what comes out: tables, record batches, or a dict for a row."""
        raise NotImplementedError

    def on_timer(self, key: Key, timer: Timer, ctx: KeyContext) -> Any:
        """A timer of this key fires. Yield (or return) as in :meth:`process`."""

    def close(self) -> None:
        """Called once after the last key of a task."""
