"""What a pod says of itself: which containers run, what they wait for, how they ended. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from epochal.control.endings import how_it_ended
from epochal.control.foreign import clean

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """``reason`` and ``message`` are why it waits, or how it ended; ``code`` is set if it has ended."""

    name: str
    ready: bool
    restarts: int
    reason: str = ""
    message: str = ""
    code: int | None = None


def container_states(pod: Pod) -> list[ContainerState]:
    status = pod.get("status") or {}
    return [_state(one) for one in (status.get("containerStatuses") or [])]


def _state(status: Mapping[str, Any]) -> ContainerState:
    state = status.get("state") or {}
    found = state.get("waiting") or state.get("terminated") or {}
    # One that is started again and again waits: how it ended last is what counts.
    last = (status.get("lastState") or {}).get("terminated") or {}
    ended = state.get("terminated") or last
    message = ended.get("message") if ended and not found.get("message") else found.get("message")
    return ContainerState(
        name=str(status.get("name", "")),
        ready=bool(status.get("ready")),
        restarts=int(status.get("restartCount", 0)),
        reason=str(found.get("reason") or ""),
        message=clean(str(message or "")),
        code=int(ended["exitCode"]) if "exitCode" in ended else None,
    )


def unschedulable(pod: Pod) -> str:
    for one in (pod.get("status") or {}).get("conditions") or []:
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return clean(str(one.get("message") or one.get("reason") or ""))
    return ""


def trouble(pod: Pod) -> str:
    """What is wrong with a pod, in a line; empty if nothing is."""
    return next(_troubles(pod), "")


def _troubles(pod: Pod) -> Iterator[str]:
    status = pod.get("status") or {}
    if status.get("reason"):
        yield clean(": ".join(filter(None, (status["reason"], status.get("message")))))
    for state in container_states(pod):
        if state.reason in ("ContainerCreating", "PodInitializing"):
            continue
        if state.code is not None and state.reason != "Completed" and not state.ready:
            yield how_it_ended(state.code, state.reason, state.message)
        elif state.reason and state.reason != "Completed":
            yield clean(": ".join(filter(None, (state.reason, state.message))))
    if waits := unschedulable(pod):
        yield f"Unschedulable: {waits}"
