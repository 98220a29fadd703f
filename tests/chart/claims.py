"""What docs/rbac.md says, sentence by sentence, each with what is asked of a real API server to see that it is true."""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any

from epochal.control.job import DEFAULT_SERVICE_ACCOUNT
from tests.chart.cluster import JOB_NAMESPACE
from tests.chart.render import RELEASE_NAMESPACE, Values

OTHER_NAMESPACE = "team-b"
"""One without jobs."""


class Install(StrEnum):
    """How the chart is installed where a sentence is true."""

    BY_DEFAULT = "by default"
    """With the only value that has no default: where jobs run."""
    WATCHING = "with watchNamespaces"


VALUES: dict[Install, Values] = {
    Install.BY_DEFAULT: {"workload": {"namespaces": [JOB_NAMESPACE]}},
    Install.WATCHING: {"watchNamespaces": [JOB_NAMESPACE], "ha": {"enabled": True}},
}


class Who(StrEnum):
    OPERATOR = f"system:serviceaccount:{RELEASE_NAMESPACE}:epochal"
    DRIVER = f"system:serviceaccount:{JOB_NAMESPACE}:{DEFAULT_SERVICE_ACCOUNT}"
    VIEWER = "viewer"
    """A person who is bound to the cluster's own role `view` in the namespace of jobs."""
    EDITOR = "editor"
    """The same with `edit`."""


@dataclass(frozen=True, kw_only=True)
class Asks:
    """A SubjectAccessReview. ``where`` is empty for what has no namespace, and for all namespaces at once."""

    who: Who
    verb: str
    resource: str
    where: str
    allowed: bool


@dataclass(frozen=True, kw_only=True)
class StartsPod:
    """A pod that somebody asks for, with more in its ``spec`` than a container; not kept."""

    who: Who
    where: str
    spec: dict[str, Any]
    allowed: bool


@dataclass(frozen=True)
class ShownBy:
    """Another test shows it: its file and its name."""

    file: str
    test: str


Proof = Asks | StartsPod | ShownBy


@dataclass(frozen=True)
class Sentence:
    text: str
    proofs: list[Proof]
    install: Install = Install.BY_DEFAULT


@dataclass(frozen=True)
class Part:
    title: str
    sentences: list[Sentence] = field(default_factory=list)


def asks(who: Who, verbs: str, resources: str, *where: str, allowed: bool) -> list[Proof]:
    """All verbs of all resources in all places."""
    return [
        Asks(who=who, verb=verb, resource=resource, where=place, allowed=allowed)
        for verb, resource, place in product(verbs.split(), resources.split(), where)
    ]


READ = "get list watch"
CHANGE = "create update patch delete deletecollection"
POWER = (
    "roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io serviceaccounts "
    "serviceaccounts/token pods/exec pods/attach pods/ephemeralcontainers"
)
CLUSTER_POWER = (
    "clusterroles.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io nodes namespaces "
    "mutatingwebhookconfigurations.admissionregistration.k8s.io customresourcedefinitions.apiextensions.k8s.io"
)
EVERYWHERE = (JOB_NAMESPACE, OTHER_NAMESPACE, RELEASE_NAMESPACE)
A_SECRET = {"volumes": [{"name": "a", "secret": {"secretName": "of-somebody-else"}}]}

INTRODUCTION = Part(
    "Rights",
    [
        Sentence(
            "The chart makes two kinds of service account: the **operator**'s, in the release's namespace, and "
            "`epochal-driver`, which all pods of a job run as, in each of `workload.namespaces`.",
            [
                ShownBy("test_chart.py", "test_it_renders_what_the_snapshot_says"),
                ShownBy("../operator/test_resources.py", "test_all_pods_of_a_job_run_as_one_account"),
            ],
        ),
        Sentence(
            "Rights to the API server are for the operator and for **drivers**, which start and remove their own "
            "executors. No rule has a `*`.",
            [
                ShownBy("../operator/test_resources.py", "test_only_the_driver_gets_a_token_of_the_api_server"),
                ShownBy("test_chart.py", "test_no_rule_has_a_star"),
            ],
        ),
    ],
)

OPERATOR_PART = Part(
    "The operator",
    [
        Sentence(
            "It looks after the jobs of all namespaces but its own, and may start pods in every one.",
            asks(Who.OPERATOR, "create", "pods", *EVERYWHERE, allowed=True)
            + asks(Who.OPERATOR, "list watch", "streamingjobs.epochal.dev", "", allowed=True),
        ),
        Sentence(
            "A pod can run as any service account of its namespace and mount any Secret there. So whoever has the "
            "operator's account has, in the end, all that any pod of the cluster has: guard its namespace as you would "
            "guard `kube-system`.",
            [
                StartsPod(
                    who=Who.OPERATOR, where=where, spec={"serviceAccountName": "default"} | A_SECRET, allowed=True
                )
                for where in (OTHER_NAMESPACE, "kube-system")
            ],
        ),
        Sentence(
            "It can read every Secret whose name it knows, and list none.",
            asks(Who.OPERATOR, "get", "secrets", *EVERYWHERE, allowed=True)
            + asks(Who.OPERATOR, "list watch update patch delete", "secrets", *EVERYWHERE, "", allowed=False),
        ),
        Sentence(
            "It may create Secrets, and neither change nor delete any. The Secret of a generation belongs to its "
            "ConfigMap, and Kubernetes deletes it with that.",
            [
                *asks(Who.OPERATOR, "create", "secrets", *EVERYWHERE, allowed=True),
                *asks(Who.OPERATOR, "update patch delete deletecollection", "secrets", *EVERYWHERE, allowed=False),
                ShownBy(
                    "../operator/test_controller.py",
                    "test_each_generation_has_secrets_of_its_own_that_go_with_its_configuration",
                ),
            ],
        ),
        Sentence(
            "It cannot change roles, bindings, service accounts, nodes, namespaces, webhooks or CRDs, make tokens, run "
            "commands in pods, read their logs, or act as somebody else.",
            asks(Who.OPERATOR, CHANGE, POWER, *EVERYWHERE, allowed=False)
            + asks(Who.OPERATOR, CHANGE, CLUSTER_POWER, "", allowed=False)
            + asks(Who.OPERATOR, "get", "pods/log", *EVERYWHERE, allowed=False)
            + asks(Who.OPERATOR, "impersonate", "users groups serviceaccounts", "", allowed=False)
            + asks(Who.OPERATOR, "bind escalate", "clusterroles.rbac.authorization.k8s.io", "", allowed=False),
        ),
        Sentence(
            "It sees all nodes, so that it can move drivers off one that is being emptied, and may create "
            "PodDisruptionBudgets, but not change or delete them.",
            asks(Who.OPERATOR, "list watch", "nodes", "", allowed=True)
            + asks(Who.OPERATOR, "create", "poddisruptionbudgets.policy", *EVERYWHERE, allowed=True)
            + asks(
                Who.OPERATOR, "update patch delete deletecollection", "poddisruptionbudgets.policy", *EVERYWHERE,
                allowed=False,
            ),
        ),
        Sentence(
            "With `watchNamespaces`, all this ends at these namespaces: elsewhere it may do nothing, and in the "
            "release's own only hold its Lease.",
            asks(Who.OPERATOR, "create", "pods", JOB_NAMESPACE, allowed=True)
            + asks(Who.OPERATOR, f"{READ} {CHANGE}", "pods secrets configmaps", OTHER_NAMESPACE, "", allowed=False)
            + asks(Who.OPERATOR, READ, "streamingjobs.epochal.dev", OTHER_NAMESPACE, "", allowed=False)
            + asks(Who.OPERATOR, f"{READ} {CHANGE}", "pods secrets configmaps", RELEASE_NAMESPACE, allowed=False)
            + asks(Who.OPERATOR, "create", "leases.coordination.k8s.io", RELEASE_NAMESPACE, allowed=True)
            + asks(Who.OPERATOR, "create", "leases.coordination.k8s.io", OTHER_NAMESPACE, allowed=False),
            Install.WATCHING,
        ),
        Sentence(
            "With `watchNamespaces` it sees no nodes and makes no PodDisruptionBudgets.",
            asks(Who.OPERATOR, READ, "nodes", "", allowed=False)
            + asks(Who.OPERATOR, "create", "poddisruptionbudgets.policy", *EVERYWHERE, allowed=False),
            Install.WATCHING,
        ),
        Sentence(
            "Each right of its role is needed: without any one of them, something fails.",
            [
                ShownBy("test_rbac.py", "test_each_right_is_needed_and_no_other_is"),
                ShownBy("test_rbac.py", "test_each_right_of_the_cluster_role_is_needed"),
            ],
        ),
    ],
)  # fmt: skip

DRIVER_PART = Part(
    "Drivers",
    [
        Sentence(
            "A driver may read, start and delete pods of its own namespace. It may do nothing else, and nothing in "
            "other namespaces.",
            asks(Who.DRIVER, f"{READ} create delete deletecollection", "pods", JOB_NAMESPACE, allowed=True)
            + asks(Who.DRIVER, "update patch", "pods pods/status", JOB_NAMESPACE, allowed=False)
            + asks(Who.DRIVER, f"{READ} {CHANGE}", "configmaps services", JOB_NAMESPACE, allowed=False)
            + asks(Who.DRIVER, f"{READ} {CHANGE}", "persistentvolumeclaims events", JOB_NAMESPACE, allowed=False)
            + asks(Who.DRIVER, f"{READ} {CHANGE}", "jobs.batch streamingjobs.epochal.dev", JOB_NAMESPACE, allowed=False)
            + asks(
                Who.DRIVER, f"{READ} {CHANGE}", "pods secrets", OTHER_NAMESPACE, RELEASE_NAMESPACE, "", allowed=False
            ),
        ),
        Sentence(
            "It cannot read Secrets from the API server, run commands in pods, or read their logs.",
            asks(Who.DRIVER, f"{READ} {CHANGE}", "secrets", JOB_NAMESPACE, allowed=False)
            + asks(Who.DRIVER, CHANGE, POWER, JOB_NAMESPACE, allowed=False)
            + asks(Who.DRIVER, "get", "pods/log pods/exec", JOB_NAMESPACE, allowed=False),
        ),
        Sentence(
            "But a pod that it starts can mount every Secret of its namespace, and run as every service account there. "
            "So the code of a job can reach all that its namespace holds.",
            [
                StartsPod(who=Who.DRIVER, where=JOB_NAMESPACE, spec=spec, allowed=True)
                for spec in (A_SECRET, {"serviceAccountName": "default"})
            ],
        ),
        Sentence(
            "It can see and delete the pods of other jobs of its namespace, too: RBAC does not tell pods apart. The "
            "namespace is the border. Give teams that do not trust each other a namespace each.",
            [
                *asks(Who.DRIVER, "list delete deletecollection", "pods", JOB_NAMESPACE, allowed=True),
                StartsPod(who=Who.DRIVER, where=OTHER_NAMESPACE, spec={}, allowed=False),
            ],
        ),
        Sentence(
            "Executors and cleanups run as the same account, for workload identity, but get no token for the API "
            "server.",
            [ShownBy("test_release.py", "test_a_jobs_pods_pass_the_restricted_standard_and_run_as_one_account")],
        ),
        Sentence(
            "Each right is needed, and Spark asks for no other.",
            [ShownBy("test_driver_rbac.py", "test_each_right_is_needed_and_no_other_is")],
        ),
    ],
)

NAMESPACE_PART = Part(
    "The operator's namespace",
    [
        Sentence(
            "No job runs in the release's namespace. A driver there could start a pod as the operator, and its code "
            "would be the operator. So the chart makes nothing for jobs there, and refuses to be installed if "
            "`watchNamespaces` or `workload.namespaces` lists it.",
            [
                ShownBy("test_chart.py", "test_nothing_for_jobs_is_in_the_releases_namespace"),
                ShownBy("test_chart.py", "test_bad_values_are_refused"),
            ],
        ),
        Sentence(
            "The operator starts no job in its own namespace, whatever account it names: condition `Stalled` and one "
            "event say so.",
            [ShownBy("../operator/test_controller.py", "test_no_job_runs_beside_the_operator")],
        ),
        Sentence(
            "From the namespaces of jobs nobody gets there: a driver cannot start pods in the release's namespace, and "
            "there is no account of the operator's name in its own.",
            [
                StartsPod(
                    who=Who.DRIVER, where=RELEASE_NAMESPACE, spec={"serviceAccountName": "epochal"}, allowed=False
                ),
                StartsPod(who=Who.DRIVER, where=JOB_NAMESPACE, spec={"serviceAccountName": "epochal"}, allowed=False),
            ],
        ),
        Sentence(
            "Other namespaces with powerful accounts are not guarded like this: the operator may start pods in "
            "`kube-system`, or beside another release's operator. Let nobody create StreamingJobs there.",
            [StartsPod(who=Who.OPERATOR, where="kube-system", spec={"serviceAccountName": "default"}, allowed=True)],
        ),
    ],
)

PEOPLE_PART = Part(
    "People",
    [
        Sentence(
            "Two cluster roles add to those that every cluster has (`rbac.userRoles`). Who is bound to `view` may get, "
            "list and watch StreamingJobs, their status and scale.",
            asks(
                Who.VIEWER, READ,
                "streamingjobs.epochal.dev streamingjobs.epochal.dev/status streamingjobs.epochal.dev/scale",
                JOB_NAMESPACE, allowed=True,
            )
            + asks(Who.VIEWER, CHANGE, "streamingjobs.epochal.dev", JOB_NAMESPACE, allowed=False)
            + asks(Who.VIEWER, READ, "streamingjobs.epochal.dev", OTHER_NAMESPACE, allowed=False),
        ),
        Sentence(
            "Who is bound to `edit` or `admin` may also create, update, patch and delete them, and `kubectl scale` "
            "them; their status is the operator's.",
            asks(Who.EDITOR, CHANGE, "streamingjobs.epochal.dev", JOB_NAMESPACE, allowed=True)
            + asks(Who.EDITOR, "update patch", "streamingjobs.epochal.dev/scale", JOB_NAMESPACE, allowed=True)
            + asks(Who.EDITOR, "update patch", "streamingjobs.epochal.dev/status", JOB_NAMESPACE, allowed=False),
        ),
        Sentence(
            "A person who may create a StreamingJob in a namespace can run any image there, as any service account of "
            "that namespace: `edit` lets people do the same with pods.",
            [
                StartsPod(who=Who.EDITOR, where=JOB_NAMESPACE, spec={"serviceAccountName": "default"}, allowed=True),
                ShownBy("../operator/test_resources.py", "test_all_pods_of_a_job_run_as_one_account"),
            ],
        ),
    ],
)  # fmt: skip

BY_HAND_PART = Part(
    "Without the chart's roles",
    [
        Sentence(
            "With `rbac.create=false` the operator needs the rights of its table in each namespace that it looks "
            "after, those of the Lease's where its Lease is, and drivers those of their table.",
            [
                ShownBy("test_rbac.py", "test_the_charts_roles_hold_these_rights_and_no_others"),
                ShownBy("test_rbac.py", "test_without_a_lease_right_nobody_leads"),
            ],
        ),
        Sentence(
            "An operator that runs outside of the cluster (`--driver-access=proxy`) also needs to `get` and `create` "
            "`pods/portforward`, which the chart's role does not let it.",
            asks(Who.OPERATOR, "get create", "pods/portforward", *EVERYWHERE, allowed=False),
        ),
    ],
)

PARTS = [INTRODUCTION, OPERATOR_PART, DRIVER_PART, NAMESPACE_PART, PEOPLE_PART, BY_HAND_PART]
