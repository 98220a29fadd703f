"""kubectl: the machine's own, or one that is built where there is none."""

import shutil
import subprocess
from pathlib import Path

from cluster.binaries import KUBECTL
from cluster.errors import ClusterError
from cluster.gobuild import ensure_built


def kubectl_binary() -> str:
    return shutil.which("kubectl") or str(ensure_built(KUBECTL))


def kubectl(kubeconfig: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run it to the end, and return what it said."""
    command = [kubectl_binary(), f"--kubeconfig={kubeconfig}", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
