"""What a driver's pod says of its driver: that it waits and for what, that it runs, or why it ended. Pure."""

from collections.abc import Iterable

from epochal.control.endings import how_it_ended, last_error
from epochal.control.foreign import clean
from epochal.control.lifecycle import DriverEnded
from epochal.protocol.control import TOKEN_VARIABLE
from epochal.protocol.decision import Seconds
from epochal.protocol.epochs import Generation
from epochal_operator.api import JsonObject
from epochal_operator.kubernetes.manifests.resources import DRIVER_CONTAINER
from epochal_operator.names import GENERATION_LABEL, ROLE_LABEL, Role
from epochal_operator.reporting.timestamps import parse_timestamp


def is_driver(pod: JsonObject) -> bool:
    return label(pod, ROLE_LABEL) == Role.DRIVER and label(pod, GENERATION_LABEL).isdigit()


def is_executor(pod: JsonObject) -> bool:
    return label(pod, ROLE_LABEL) == Role.EXECUTOR


def label(pod: JsonObject, name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def generation_of(pod: JsonObject) -> Generation:
    return Generation(int(label(pod, GENERATION_LABEL)))


def keys_of(pod: JsonObject) -> str:
    """The Secret that the driver was started with, whichever release of the operator has named it; empty if none is."""
    for container in pod["spec"].get("containers") or []:
        for variable in container.get("env") or []:
            if container["name"] == DRIVER_CONTAINER and variable["name"] == TOKEN_VARIABLE:
                return str(((variable.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name") or "")
    return ""


def ended(pod: JsonObject) -> DriverEnded | None:
    """How the driver ended; None while it lives. Its own container counts: a sidecar that has died changes nothing, and
    one that runs on does not keep the driver alive."""
    status = pod.get("status") or {}
    generation = generation_of(pod)
    container = ended_container(pod, DRIVER_CONTAINER)
    if container is not None:
        code = int(container.get("exitCode", 1))
        said = how_it_ended(code, str(container.get("reason") or ""), str(container.get("message") or ""))
        return DriverEnded(generation=generation, code=code, message=said)
    if status.get("phase") in ("Succeeded", "Failed"):
        # Evicted, its node is gone, or it never began: the pod knows, its container does not.
        said = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        return DriverEnded(generation=generation, code=None, message=clean(said or _init_failed(status)))
    return None


def runs_on(pod: JsonObject) -> bool:
    """Whether other containers run on after the driver's has ended: nobody ends them but us."""
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not over and ended(pod) is not None and "deletionTimestamp" not in pod["metadata"]


def running_since(pod: JsonObject) -> Seconds | None:
    """When the driver's container began."""
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        if container.get("name") == DRIVER_CONTAINER and (running := (container.get("state") or {}).get("running")):
            return parse_timestamp(running["startedAt"]) if running.get("startedAt") else None
    return None


def leaving(pod: JsonObject) -> str:
    """Why the pod has to go, if it has to: evicted, preempted, deleted by somebody, its node drained or shut down."""
    if said := disrupted(pod):
        return f"its pod has to go: {said}"
    return "its pod is being deleted" if "deletionTimestamp" in pod["metadata"] else ""


def disrupted(pod: JsonObject) -> str:
    """Why Kubernetes takes the pod away, if it does. A pod that somebody has just deleted is not meant."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return clean(": ".join(filter(None, (condition.get("reason"), condition.get("message")))))
    return ""


def executors_of(driver: JsonObject, pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Those that run: Spark makes the driver's pod their owner."""
    uid = driver["metadata"]["uid"]
    return [
        pod
        for pod in pods
        if is_executor(pod)
        and any(owner.get("uid") == uid for owner in pod["metadata"].get("ownerReferences") or [])
        and (pod.get("status") or {}).get("phase") == "Running"
    ]


def waits_for(pod: JsonObject) -> str:
    """What a pod that has not begun is waiting for, in words."""
    status = pod.get("status") or {}
    if running_since(pod) is not None:
        return ""
    reason, message = _container_waits(status)
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return clean(": ".join(filter(None, (reason, message))))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return clean(": ".join(filter(None, (condition.get("reason"), condition.get("message")))))
    return ""


def ended_container(pod: JsonObject, name: str) -> JsonObject | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        if container.get("name") == name:
            ended: JsonObject | None = (container.get("state") or {}).get("terminated")
            return ended
    return None


def _init_failed(status: JsonObject) -> str:
    for container in status.get("initContainerStatuses") or []:
        terminated = (container.get("state") or {}).get("terminated") or {}
        if code := terminated.get("exitCode"):
            said = last_error(terminated.get("message") or "") or str(terminated.get("reason") or "")
            return f"init container {container.get('name')} ended with code {code}" + (f": {said}" if said else "")
    return ""


def _container_waits(status: JsonObject) -> tuple[str, str]:
    containers = (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or [])
    for container in containers:
        if waiting := (container.get("state") or {}).get("waiting"):
            return str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    return "", ""
