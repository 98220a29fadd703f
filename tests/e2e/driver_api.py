"""Talking to a driver as the operator does, from the machine: pods' addresses are reachable from there."""

import json
from dataclasses import dataclass

from epochal.control.driver_client import DriverClient, Trust
from epochal.protocol.control import DriverStatus
from epochal.protocol.epochs import Generation
from epochal_operator.kubernetes.driver_keys import DriverKeys
from epochal_operator.kubernetes.pod_state import keys_of
from epochal_operator.names import CONTROL_PORT, driver_host
from examples.cluster.live_job import LiveJob


@dataclass(frozen=True)
class Access:
    """What it takes to talk to a driver, also when Kubernetes knows nothing of it any more."""

    address: str
    keys: DriverKeys
    host: str

    @property
    def client(self) -> DriverClient:
        return DriverClient(
            f"https://{self.address}:{CONTROL_PORT}",
            self.keys.token,
            timeout=20,
            trust=Trust.of(self.keys.authority, self.host),
        )


def access(job: LiveJob) -> Access:
    """To the job's present driver."""
    pod = json.loads(job.kubectl("get", "pod", job.driver, "--output=json"))
    secret = json.loads(job.kubectl("get", "secret", keys_of(pod), "--output=json"))
    host = driver_host(job.namespace, job.name, Generation(job.generation))
    return Access(pod["status"]["podIP"], DriverKeys.of(secret), host)


def driver_status(job: LiveJob) -> DriverStatus:
    """Of the job's present driver."""
    return access(job).client.status()
