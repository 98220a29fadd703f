"""Rendering the chart, and the snapshots of what came out.

    python -m tests.chart.render --write

writes the snapshots anew, and copies the CRD into the chart.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "epochal"
CRD = ROOT / "crds" / "streamingjobs.epochal.dev.yaml"
CRD_COPY = CHART / "files" / "crds" / CRD.name
SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = "write it anew, and look at what changed: python -m tests.chart.render --write"
HELM = Path(sys.executable).with_name("helm")

RELEASE_NAMESPACE = "epochal-system"

Values = Mapping[str, Any]

NO_CRDS = {"crds": {"enabled": False}}
"""The CRD has tests of its own; seven times in the snapshots it would hide what matters there."""

VARIANTS: dict[str, Values] = {
    "default": {},
    "namespaced": {
        "watchNamespaces": ["team-a", "team-b"],
        "operator": {"defaultImage": "example.org/epochal-spark:1"},
    },
    "ha": {"ha": {"enabled": True, "replicas": 3}, "image": {"digest": "sha256:" + "a" * 64}},
    "monitoring": {
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "runbookUrl": "https://example.org/runbook"},
            "dashboard": {"enabled": True},
        }
    },
    "locked-down": {
        "networkPolicy": {
            "restrictEgress": True,
            "egressPorts": [6443, 9000],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        },
        "rbac": {"userRoles": False},
        "workload": {"namespaces": ["jobs"]},
    },
    "bring-your-own": {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False, "userRoles": False},
        "workload": {"create": False},
        "networkPolicy": {"enabled": False},
    },
    "everything-set": {
        "nameOverride": "streams",
        "image": {"repository": "example.org:5000/epochal-operator", "tag": "1.2", "pullSecrets": ["registry"]},
        "operator": {
            "tick": 0.5,
            "deletionTimeout": 60,
            "threads": 8,
            "logFormat": "plain",
            "debug": True,
            "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
        },
        "podLabels": {"team": "data"},
        "podAnnotations": {"note": "x"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "serviceAccount": {"name": "streams-operator", "annotations": {"example.org/role": "reader"}},
        "workload": {"namespaces": ["jobs"], "annotations": {"example.org/role": "writer"}},
    },
}


class HelmError(Exception):
    """What helm said on its way out."""


def helm(*arguments: str, values: Values | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run helm and return what it printed; `values` go in as a file."""
    command = [str(HELM), *arguments]
    given = None
    if values is not None:
        command += ["--values", "-"]
        given = yaml.safe_dump(dict(values))
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=env, timeout=120, check=False)
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def rendered(values: Values) -> str:
    return _rendered(yaml.safe_dump(dict(values)))


@cache
def _rendered(values: str) -> str:
    # Tests ask for the same again and again.
    return helm("template", "epochal", str(CHART), "--namespace", RELEASE_NAMESPACE, values=yaml.safe_load(values))


def documents(values: Values) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(rendered(values)) if document]


def found(values: Values, kind: str, name: str) -> dict[str, Any]:
    """The one object of this kind and name."""
    (one,) = (
        document for document in documents(values) if document["kind"] == kind and document["metadata"]["name"] == name
    )
    return one


def main() -> None:
    if "--write" not in sys.argv:
        sys.exit(__doc__)
    shutil.copyfile(CRD, CRD_COPY)
    for name, values in VARIANTS.items():
        (SNAPSHOTS / f"{name}.yaml").write_text(rendered({**values, **NO_CRDS}), encoding="utf-8")


if __name__ == "__main__":
    main()
