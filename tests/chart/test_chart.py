"""What the chart renders, and that it fits the operator, the CRD and the documentation."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from epochal.control.job import DEFAULT_SERVICE_ACCOUNT
from epochal.control.schema import load_crd
from epochal_operator import names
from epochal_operator.__main__ import parse_options
from epochal_operator.reporting.metrics import OperatorMetrics
from tests.chart.render import (
    CHART,
    CRD,
    CRD_COPY,
    NO_CRDS,
    RELEASE_NAMESPACE,
    ROOT,
    SNAPSHOTS,
    VARIANTS,
    WRITE,
    HelmError,
    documents,
    found,
    helm,
    rendered,
)

MONITORING = VARIANTS["monitoring"]


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_it_renders_what_the_snapshot_says(name: str) -> None:
    snapshot = (SNAPSHOTS / f"{name}.yaml").read_text(encoding="utf-8")
    assert rendered({**VARIANTS[name], **NO_CRDS}) == snapshot, WRITE


def test_there_is_no_other_snapshot() -> None:
    assert {path.stem for path in SNAPSHOTS.iterdir()} == set(VARIANTS)


def test_helm_finds_nothing_to_complain_about() -> None:
    helm("lint", str(CHART), "--strict")


# --- values -----------------------------------------------------------------------------------------------------------

BAD_VALUES: list[tuple[str, str, str]] = [
    ("a misspelt value", "watchNamespace: [a]", "Additional property watchNamespace is not allowed"),
    ("a misspelt value below", "crds: {kepp: true}", "Additional property kepp is not allowed"),
    ("a namespace as text", "watchNamespaces: team-a", "watchNamespaces: Invalid type. Expected: array, given: string"),
    ("a namespace in capitals", "watchNamespaces: [Team]", "watchNamespaces.0: Does not match pattern"),
    ("the same namespace twice", "watchNamespaces: [a, a]", "array items[0,1] must be unique"),
    ("a boolean as text", 'crds: {enabled: "yes"}', "crds.enabled: Invalid type. Expected: boolean, given: string"),
    ("an image with its scheme", "image: {repository: 'https://x/y'}", "image.repository: Does not match pattern"),
    ("a tag in the repository", "image: {repository: 'x/y:1'}", "image.repository: Does not match pattern"),
    ("a short digest", "image: {digest: 'sha256:abc'}", "image.digest: Does not match pattern"),
    ("a number as tag", "image: {tag: 1.2}", "image.tag: Invalid type. Expected: string, given: number"),
    ("an unknown pull policy", "image: {pullPolicy: Sometimes}", "image.pullPolicy must be one of the following"),
    ("a tick of zero", "operator: {tick: 0}", "operator.tick: Must be greater than or equal to 0.1"),
    ("a tick as duration", "operator: {tick: 1s}", "operator.tick: Invalid type. Expected: number"),
    ("an unknown log format", "operator: {logFormat: xml}", "operator.logFormat must be one of the following"),
    ("no threads", "operator: {threads: 0}", "operator.threads: Must be greater than or equal to 1"),
    ("a variable without a name", "operator: {env: [{value: x}]}", "operator.env.0: name is required"),
    ("one replica in HA", "ha: {enabled: true, replicas: 1}", "ha.replicas: Must be greater than or equal to 2"),
    ("a port that is none", "networkPolicy: {egressPorts: [70000]}", "egressPorts.0: Must be less than or equal to"),
    ("a misspelt peer", "networkPolicy: {metricsFrom: [{namespace: a}]}", "Additional property namespace is not allow"),
    ("an interval without unit", "metrics: {serviceMonitor: {interval: '30'}}", "interval: Does not match pattern"),
    ("a label that is a number", "podLabels: {team: 1}", "podLabels.team: Invalid type. Expected: string"),
    (
        "the release's namespace among those of jobs",
        "workload: {namespaces: [jobs, epochal-system]}",
        "workload.namespaces lists the release's own namespace epochal-system. A driver may start pods as any service",
    ),
    (
        "the same, without the chart's account",
        "{workload: {create: false}, watchNamespaces: [epochal-system]}",
        "watchNamespaces lists the release's own namespace epochal-system",
    ),
    ("a name that is too long", f"nameOverride: {'x' * 41}", "String length must be less than or equal to 40"),
]


@pytest.mark.parametrize(("what", "values", "says"), BAD_VALUES, ids=[case[0] for case in BAD_VALUES])
def test_bad_values_are_refused(what: str, values: str, says: str) -> None:
    with pytest.raises(HelmError, match=re.escape(says)):
        rendered(yaml.safe_load(values))


def paths(values: dict[str, Any], above: str = "") -> set[str]:
    result = set()
    for name, value in values.items():
        result.add(f"{above}{name}")
        if isinstance(value, dict):
            result |= paths(value, f"{above}{name}.")
    return result


def schema_paths(schema: dict[str, Any], above: str = "") -> set[str]:
    result = set()
    for name, below in schema.get("properties", {}).items():
        result.add(f"{above}{name}")
        result |= schema_paths(below, f"{above}{name}.")
    return result


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = schema_paths(json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))
    free = ("resources.", "podSecurityContext.", "securityContext.", "metrics.dashboard.labels.")
    assert {path for path in paths(values) if not path.startswith(free)} == {
        path for path in known if path != "global" and not path.startswith("resources.") and ".metricsFrom" not in path
    } | ({"networkPolicy.metricsFrom"})


def test_every_value_has_a_comment() -> None:
    """Or is part of one that has: a map whose parts have comments, or a default that is given whole."""
    whole = ("resources:", "podSecurityContext:", "securityContext:", "    labels:")
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    inside, without = "", []
    for before, line in zip(["", *lines], lines, strict=False):
        if not re.match(r" *[a-zA-Z_]+:", line):
            continue
        indent = len(line) - len(line.lstrip())
        if inside and indent > len(inside) - len(inside.lstrip()):
            continue
        inside = line if line.startswith(whole) else ""
        opens_a_map = line.endswith(":") and not inside
        if not before.lstrip().startswith("#") and not opens_a_map:
            without.append(line)
    assert not without


# --- the CRD ----------------------------------------------------------------------------------------------------------


def test_the_charts_crd_is_the_one() -> None:
    assert CRD_COPY.read_bytes() == CRD.read_bytes(), WRITE


@pytest.mark.parametrize("keep", [True, False])
def test_the_crd_is_rendered_unchanged_and_kept_if_asked_for(keep: bool) -> None:
    crd = found({"crds": {"keep": keep}}, "CustomResourceDefinition", "streamingjobs.epochal.dev")
    annotations = crd["metadata"].pop("annotations", {})
    del crd["metadata"]["labels"]
    assert crd == load_crd()
    assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})


def test_no_crd_if_not_wanted() -> None:
    assert "CustomResourceDefinition" not in {document["kind"] for document in documents(NO_CRDS)}


# --- it fits the operator ---------------------------------------------------------------------------------------------


def operator_arguments(name: str) -> list[str]:
    (deployment,) = (d for d in documents({**VARIANTS[name], **NO_CRDS}) if d["kind"] == "Deployment")
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


@pytest.mark.parametrize("name", VARIANTS)
def test_the_operator_takes_its_arguments(name: str) -> None:
    options = parse_options(operator_arguments(name))
    values = VARIANTS[name]
    assert options.namespaces == tuple(values.get("watchNamespaces", ()))
    assert options.lease == ("epochal" if name == "ha" else None)
    assert options.tick == values.get("operator", {}).get("tick", 1)
    assert options.own_namespace == RELEASE_NAMESPACE


def test_ports_and_names_are_the_operators() -> None:
    values = {"workload": {"namespaces": ["jobs"]}}
    policy = found(values, "NetworkPolicy", "epochal-driver")
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == [names.CONTROL_PORT, names.DRIVER_PORT, names.BLOCK_MANAGER_PORT]
    assert set(policy["spec"]["podSelector"]["matchLabels"].items()) <= set(
        names.labels("words", names.Role.DRIVER).items()
    )
    assert found(values, "ServiceAccount", DEFAULT_SERVICE_ACCOUNT)


def test_without_a_lease_there_are_never_two() -> None:
    deployment = found({}, "Deployment", "epochal")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_for_jobs_is_in_the_releases_namespace(name: str) -> None:
    """Who runs a job there could start a pod as the operator."""
    made = [d["metadata"] for d in documents({**VARIANTS[name], **NO_CRDS}) if "driver" in d["metadata"]["name"]]
    assert RELEASE_NAMESPACE not in {metadata["namespace"] for metadata in made}


def test_by_default_jobs_can_run_nowhere() -> None:
    assert not [d for d in documents(NO_CRDS) if d["metadata"]["name"] == DEFAULT_SERVICE_ACCOUNT]


def test_namespaced_rights_end_at_the_namespaces() -> None:
    made = documents({**VARIANTS["namespaced"], **NO_CRDS, "rbac": {"userRoles": False}})
    assert not [document for document in made if document["kind"].startswith("Cluster")]
    assert {d["metadata"]["namespace"] for d in made if d["kind"] == "Role"} == {"team-a", "team-b"}


def test_no_rule_has_a_star() -> None:
    for name, values in VARIANTS.items():
        for document in documents({**values, **NO_CRDS}):
            assert "*" not in json.dumps(document.get("rules", [])), name


# --- it fits the documentation ----------------------------------------------------------------------------------------


def alerts() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = found(MONITORING, "PrometheusRule", "epochal")["spec"]["groups"][0]["rules"]
    return rules


def test_each_alert_has_its_part_of_the_runbook_and_each_part_an_alert() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        assert alert["annotations"]["runbook_url"] == f"https://example.org/runbook#{alert['alert'].lower()}"


def expressions() -> list[str]:
    """All that is asked of Prometheus, by alerts and by the dashboard."""
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [alert["expr"] for alert in alerts()] + shown


def test_prometheus_understands_what_it_is_asked() -> None:
    for expression in expressions():
        promql_parser.parse(expression)


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bepochal_[a-z_]+", text))


def test_alerts_and_dashboard_ask_for_metrics_that_exist() -> None:
    families = list(OperatorMetrics().registry.collect())
    known = {f"{family.name}{end}" for family in families for end in ("", "_total", "_bucket", "_sum", "_count")}
    asked = set().union(*map(metrics_in, expressions()))
    assert asked
    assert asked <= known


def test_the_dashboard_is_rendered_as_it_is() -> None:
    config = found(MONITORING, "ConfigMap", "epochal-dashboard")
    original = Path(CHART / "files" / "dashboard.json").read_text(encoding="utf-8")
    assert json.loads(config["data"]["epochal.json"]) == json.loads(original)
