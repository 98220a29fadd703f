"""Talking to a driver as the operator does, from the machine: pods' addresses are reachable from there."""

import base64
import json
from urllib.request import Request, urlopen

import msgspec

from epochal.protocol.control import CheckpointReport, CheckpointRequest, DriverStatus
from epochal_operator.kubernetes.manifests.resources import TOKEN_KEY
from epochal_operator.names import CONTROL_PORT, token_name
from examples.cluster.live_job import LiveJob


def address(job: LiveJob, pod: str) -> str:
    return job.kubectl("get", "pod", pod, "--output=jsonpath={.status.podIP}")


def token(job: LiveJob) -> str:
    secret = json.loads(job.kubectl("get", "secret", token_name(job.name), "--output=json"))
    return base64.b64decode(secret["data"][TOKEN_KEY]).decode()


def driver_status(job: LiveJob) -> DriverStatus:
    """Of the job's present driver."""
    return read_status(address(job, job.driver), token(job))


def read_status(host: str, secret: str) -> DriverStatus:
    return msgspec.json.decode(_ask(host, secret, "/v1/status"), type=DriverStatus)


def read_checkpoint(host: str, secret: str, epoch: int) -> CheckpointReport:
    return msgspec.json.decode(_ask(host, secret, f"/v1/checkpoints/{epoch}"), type=CheckpointReport)


def send_barrier(host: str, secret: str, request: CheckpointRequest) -> CheckpointReport:
    answer = _ask(host, secret, "/v1/checkpoints", msgspec.json.encode(request))
    return msgspec.json.decode(answer, type=CheckpointReport)


def _ask(host: str, secret: str, path: str, body: bytes | None = None) -> bytes:
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    with urlopen(Request(f"http://{host}:{CONTROL_PORT}{path}", data=body, headers=headers), timeout=20) as answer:
        return bytes(answer.read())
