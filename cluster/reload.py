"""What `make reload` does once the images are in the cluster.

New pods of drivers and cleanups take the new image by themselves; the operator is started anew.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.kubectl import kubectl
from cluster.progress import step

ROLLOUT_TIMEOUT = "60s"


def restart_deployments(kubeconfig: Path, changed: Sequence[str]) -> None:
    """Start those anew that run one of these images, and wait until they have."""
    found = json.loads(kubectl(kubeconfig, "get", "deployments", "--all-namespaces", "--output=json"))
    for namespace, name in deployments_of(changed, found["items"]):
        with step(f"restart {namespace}/{name}"):
            where = (f"--namespace={namespace}", f"deployment/{name}")
            kubectl(kubeconfig, "rollout", "restart", *where)
            kubectl(kubeconfig, "rollout", "status", f"--timeout={ROLLOUT_TIMEOUT}", *where)


def deployments_of(changed: Sequence[str], deployments: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Namespace and name of each Deployment that runs one of these images."""
    return [
        (deployment["metadata"]["namespace"], deployment["metadata"]["name"])
        for deployment in deployments
        if any(container["image"] in changed for container in deployment["spec"]["template"]["spec"]["containers"])
    ]
