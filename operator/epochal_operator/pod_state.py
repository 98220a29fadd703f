"""What a driver's pod says of its driver: that it waits and for what, that it runs, or why it ended. Pure."""

import re

from epochal.protocol.epochs import Generation
from epochal_operator.api import JsonObject
from epochal_operator.lifecycle import DriverEnded
from epochal_operator.names import GENERATION_LABEL, ROLE_LABEL, Role
from epochal_operator.resources import DRIVER_CONTAINER

_LOG_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ \S+ ")


def is_driver(pod: JsonObject) -> bool:
    return label(pod, ROLE_LABEL) == Role.DRIVER and label(pod, GENERATION_LABEL).isdigit()


def is_executor(pod: JsonObject) -> bool:
    return label(pod, ROLE_LABEL) == Role.EXECUTOR


def label(pod: JsonObject, name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def generation_of(pod: JsonObject) -> Generation:
    return Generation(int(label(pod, GENERATION_LABEL)))


def ended(pod: JsonObject) -> DriverEnded | None:
    """How the driver ended; None while it lives."""
    status = pod.get("status") or {}
    generation = generation_of(pod)
    if status.get("phase") in ("Succeeded", "Failed"):
        container = ended_container(pod, DRIVER_CONTAINER)
        if container is None:
            # Evicted, or its node is gone: the pod knows, its container does not.
            said = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
            return DriverEnded(generation=generation, code=None, message=said)
        code = int(container.get("exitCode", 1))
        return DriverEnded(generation=generation, code=code, message=_why(container))
    return None


def waits_for(pod: JsonObject) -> str:
    """What a pod that has not begun is waiting for, in words."""
    status = pod.get("status") or {}
    reason, message = _container_waits(status)
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return ": ".join(filter(None, (reason, message)))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""


def ended_container(pod: JsonObject, name: str) -> JsonObject | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        if container.get("name") == name:
            ended: JsonObject | None = (container.get("state") or {}).get("terminated")
            return ended
    return None


def last_line(text: str) -> str:
    """What a log said last, without when and where it said so."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _LOG_PREFIX.sub("", lines[-1]) if lines else ""


def _why(container: JsonObject) -> str:
    said = last_line(container.get("message") or "")
    reason = container.get("reason") or ""
    if reason == "OOMKilled":
        return "it ran out of memory: give it more (driver.memory), or a smaller batch"
    # "Error" and "Completed" say no more than the exit code.
    return said if reason in ("", "Error", "Completed") else ": ".join(filter(None, (reason, said)))


def _container_waits(status: JsonObject) -> tuple[str, str]:
    containers = (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or [])
    for container in containers:
        if waiting := (container.get("state") or {}).get("waiting"):
            return str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    return "", ""
