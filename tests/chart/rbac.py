"""Writes docs/rbac.md: what each service account may do, and what for.

    python -m tests.chart.rbac --write

installs the chart on a real API server and asks it.
"""

import sys
import tempfile
from pathlib import Path

from cluster.control_plane import ControlPlane
from tests.chart.cluster import JOB_NAMESPACE, RELEASE_NAMESPACE, ChartCluster
from tests.chart.render import ROOT
from tests.chart.rights import DRIVER, LEASE, OPERATOR, Right, group

PAGE = ROOT / "docs" / "rbac.md"
WRITE = "write it anew: python -m tests.chart.rbac --write"

INTRODUCTION = """\
# Rights

The chart makes two service accounts. The **operator** looks after StreamingJobs; **drivers** make and remove their own
executors. Neither has the other's rights, no rule has a `*`, and nothing can be escalated: neither may touch roles,
bindings, nodes or other people's pods' logs and shells. A driver can read no Secret but those that its pod mounts.

The operator's rights hold in all namespaces, or, with `watchNamespaces`, in those alone. It reads Secrets by name (its
own tokens, and the stores' credentials that jobs name) and can list none; where that is too much, use
`watchNamespaces`.

Written by `python -m tests.chart.rbac --write`, which installs the chart on a real API server and asks it. The tests in
`tests/chart` keep the page true, and take each right away once to see that something fails.
"""

PEOPLE = """\
## People

Two cluster roles add to those that every cluster has (`rbac.userRoles`): who is bound to `view` may get, list and watch
StreamingJobs, their status and scale; who is bound to `edit` or `admin` may also create, update, patch and delete them,
and `kubectl scale` them.

A person who may create a StreamingJob in a namespace can run any image there as any service account of that namespace,
as with any pod.

## Without the chart's roles

With `rbac.create=false` the operator needs the rights of the first table in each namespace that it looks after, those
of the second one where its Lease is, and drivers those of the third one. An operator that runs outside of the cluster
(`--driver-access=proxy`) also needs to `get` and `create` `pods/portforward`.
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


def page(cluster: ChartCluster) -> str:
    """With the chart installed by its defaults but for where drivers run."""
    operator = listed(cluster, f"{RELEASE_NAMESPACE}:epochal", JOB_NAMESPACE)
    driver = listed(cluster, f"{JOB_NAMESPACE}:epochal-driver", JOB_NAMESPACE)
    lines = [INTRODUCTION, "## The operator", "", *table(OPERATOR), ""]
    lines += ["With `ha.enabled`, in the release's namespace:", "", *table(LEASE), ""]
    lines += ["All that the API server lets it do; addresses and `selfsubject…` are for everybody:", "", *operator, ""]
    lines += ["## Drivers", "", *table(DRIVER), "", *driver, "", PEOPLE]
    return "\n".join(lines)


VALUES = {"workload": {"namespaces": [JOB_NAMESPACE]}}


def main() -> None:
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="epochal-helm-") as home:
        cluster = ChartCluster(plane, Path(home))
        cluster.make_namespaces(JOB_NAMESPACE)
        cluster.install(VALUES)
        written = page(cluster)
    if "--write" in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
