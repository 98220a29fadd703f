"""Writes docs/rbac.md: what each service account may do, and what for.

    python -m tests.chart.rbac --write

installs the chart on a real API server and asks it.
"""

import sys
import tempfile
from pathlib import Path
from textwrap import fill

from cluster.control_plane import ControlPlane
from tests.chart.claims import (
    BY_HAND_PART,
    DRIVER_PART,
    INTRODUCTION,
    NAMESPACE_PART,
    OPERATOR_PART,
    PEOPLE_PART,
    VALUES,
    Install,
    Part,
)
from tests.chart.cluster import JOB_NAMESPACE, ChartCluster
from tests.chart.render import RELEASE_NAMESPACE, ROOT
from tests.chart.rights import CLUSTER, DRIVER, LEASE, OPERATOR, Right, group

PAGE = ROOT / "docs" / "rbac.md"
WIDTH = 120
WRITE = "write it anew: python -m tests.chart.rbac --write"

WRITTEN_BY = """\
Written by `python -m tests.chart.rbac --write`, which installs the chart on a real API server and asks it. Each
sentence has its test: `tests/chart/claims.py` holds what the server is asked, for what is allowed and for what is
refused.
"""


def table(rights: dict[Right, str]) -> list[str]:
    lines = ["| API group | resource | verb | what for |", "|---|---|---|---|"]
    lines += [
        f"| {group(right) or '–'} | {right.resource} | {right.verb} | {purpose} |" for right, purpose in rights.items()
    ]
    return lines


def listed(cluster: ChartCluster, account: str, namespace: str) -> list[str]:
    """``kubectl auth can-i --list`` of a service account, in its own order, which is not always the same."""
    command = f"kubectl auth can-i --list --namespace {namespace} --as system:serviceaccount:{account}"
    head, *rest = cluster.kubectl(*command.split()[1:]).splitlines()
    return ["```", f"$ {command}", head, *sorted(line.rstrip() for line in rest), "```"]


def part(which: Part, level: str = "##") -> list[str]:
    lines = [fill(f"- {sentence.text}", WIDTH, subsequent_indent="  ") for sentence in which.sentences]
    return [f"{level} {which.title}", "", *lines, ""]


def page(cluster: ChartCluster) -> str:
    """With the chart installed by its defaults but for where jobs run."""
    operator = listed(cluster, f"{RELEASE_NAMESPACE}:epochal", JOB_NAMESPACE)
    driver = listed(cluster, f"{JOB_NAMESPACE}:epochal-driver", JOB_NAMESPACE)
    lines = [*part(INTRODUCTION, "#"), WRITTEN_BY]
    lines += [*part(OPERATOR_PART), "Its role:", "", *table(OPERATOR), ""]
    lines += ["Without `watchNamespaces` also:", "", *table(CLUSTER), ""]
    lines += ["With `ha.enabled`, in the release's namespace:", "", *table(LEASE), ""]
    lines += ["All that the API server lets it do; addresses and `selfsubject…` are for everybody:", "", *operator, ""]
    lines += [*part(DRIVER_PART), "Their role:", "", *table(DRIVER), "", *driver, ""]
    lines += [*part(NAMESPACE_PART), *part(PEOPLE_PART), *part(BY_HAND_PART)]
    return "\n".join(lines)


def main() -> None:
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="epochal-helm-") as home:
        cluster = ChartCluster(plane, Path(home))
        cluster.make_namespaces(JOB_NAMESPACE)
        cluster.install(VALUES[Install.BY_DEFAULT])
        written = page(cluster)
    if "--write" in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
