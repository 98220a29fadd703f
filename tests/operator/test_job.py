"""A manifest is checked by the CRD's own schema, and what is wrong is said with its path."""

import copy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from epochal.control.durations import format_duration, parse_duration
from epochal.control.job import DesiredState, RestartPolicy, parse_job
from epochal.control.lifecycle import JobPhase
from epochal.control.schema import ManifestError, job_schema, load_crd

ROOT = Path(__file__).parents[2]
MINIMAL: dict[str, Any] = {
    "apiVersion": "epochal.dev/v1alpha1",
    "kind": "StreamingJob",
    "metadata": {"name": "words"},
    "spec": {"pipeline": {"module": "jobs.words"}},
}


def manifest(**spec: Any) -> dict[str, Any]:
    made = copy.deepcopy(MINIMAL)
    made["spec"].update(spec)
    return made


def problems(**spec: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_job(manifest(**spec))
    return "\n".join(caught.value.problems)


def test_defaults_are_the_schemas() -> None:
    job = parse_job(MINIMAL)
    assert (job.namespace, job.name, job.state) == ("default", "words", DesiredState.RUNNING)
    assert job.checkpoint.interval == 10
    assert job.checkpoint.timeout == 600
    assert (job.checkpoint.keep, job.checkpoint.every) == (4, 20)
    assert job.restart_policy == RestartPolicy()
    assert job.restart_policy.max_restarts is None
    assert job.pipeline.config().module == "jobs.words:build"


def test_everything_that_is_given_arrives() -> None:
    job = parse_job(
        manifest(
            state="Suspended",
            checkpoint={
                "interval": "1m30s",
                "minPause": "500ms",
                "retention": {"keep": 9},
                "storage": {"uri": "s3://bucket/x", "endpoint": "http://h:1", "credentialsSecret": {"name": "keys"}},
            },
            restore={"fromEpoch": 7},
            driver={"memory": "2g", "podTemplate": {"spec": {"anything": [1, 2]}}},
            executor={"instances": 3},
            sparkConf={"spark.x": "y"},
            env=[{"name": "A", "value": "b"}],
        )
    )
    assert job.state is DesiredState.SUSPENDED
    assert (job.checkpoint.interval, job.checkpoint.min_pause) == (90, 0.5)
    assert (job.checkpoint.keep, job.checkpoint.every) == (9, 20)
    assert job.storage is not None
    assert (job.storage.config.endpoint, job.storage.credentials_secret) == ("http://h:1", "keys")
    assert job.restore.wish == "epoch:7"
    assert job.driver.pod_template == {"spec": {"anything": [1, 2]}}
    assert job.executor.instances == 3


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"checkpont": {}}, "spec.checkpont: unknown field: did you mean checkpoint?"),
        ({"checkpoint": {"retention": {"kep": 1}}}, "spec.checkpoint.retention.kep: unknown field: did you mean keep?"),
        ({"env": [{"name": "A", "vlaue": "b"}]}, "spec.env[0].vlaue: unknown field: did you mean value?"),
        ({"checkpoint": {"interval": 10}}, "spec.checkpoint.interval: 10 is no string: put it in quotes"),
        ({"checkpoint": {"interval": "10"}}, "spec.checkpoint.interval: '10': write a duration in whole ms, s"),
        ({"checkpoint": {"interval": "0s"}}, "spec.checkpoint.interval: '0s': must be between 100ms and 24h"),
        ({"checkpoint": {"retention": {"keep": 0}}}, "spec.checkpoint.retention.keep: 0 is less than the minimum of 1"),
        ({"checkpoint": {"minPause": "11s"}}, "spec.checkpoint.minPause: minPause must not be longer"),
        (
            {"checkpoint": {"storage": {"uri": "gs://bucket", "region": "x"}}},
            "spec.checkpoint.storage: endpoint and region are for s3:// only",
        ),
        ({"checkpoint": {"storage": {"uri": "/tmp/x"}}}, "spec.checkpoint.storage.uri: '/tmp/x': write s3://"),
        ({"pipeline": {}}, "spec.pipeline: set exactly one of module, configMap, file and sql"),
        (
            {"pipeline": {"module": "a", "file": "b.py"}},
            "spec.pipeline: set exactly one of module, configMap, file and sql",
        ),
        ({"pipeline": {"file": "a.py", "parameters": {"n": 3}}}, "spec.pipeline.parameters.n: 3 is no string"),
        ({"restore": {"fromEpoch": 1, "fromSavepoint": "a"}}, "spec.restore: set at most one of"),
        ({"restartPolicy": {"backoff": "6m"}}, "spec.restartPolicy.backoff: backoff must not be longer"),
        ({"state": "running"}, "spec.state: 'running' is none of Running, Suspended"),
        ({"driver": {"memory": "1.5g"}}, "spec.driver.memory: '1.5g': write the heap as Spark does"),
        ({"pipeline": None}, "spec: pipeline is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(spec: dict[str, Any], expected: str) -> None:
    assert expected in problems(**spec)


def test_all_problems_are_told_at_once() -> None:
    assert len(problems(checkpont={}, state="x", env=[{}]).splitlines()) == 3


@pytest.mark.parametrize(
    "change", [{"kind": "Job"}, {"apiVersion": "v1"}, {"metadata": {}}, {"metadata": {"name": "A_B"}}]
)
def test_other_objects_and_names_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        parse_job({**MINIMAL, **change})


def test_durations() -> None:
    assert [parse_duration(text) for text in ("250ms", "10s", "1m30s", "2h")] == [0.25, 10, 90, 7200]
    for wrong in ("", "10", "s", "1d", "-1s", "1.5s", "1s "):
        with pytest.raises(ValueError, match="not a duration"):
            parse_duration(wrong)
    assert [format_duration(seconds) for seconds in (0.44, 12, 185, 7800)] == ["0.4s", "12s", "3m05s", "2h10m"]


# --- the CRD itself ---------------------------------------------------------------------------------------------------


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from fields(below, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from fields(schema[part], f"{path}[]")


FIELDS = dict(fields(job_schema()))


def test_every_field_is_described_and_none_is_a_float() -> None:
    for path, schema in FIELDS.items():
        assert schema.get("description") or path == ".metadata", path
        assert schema.get("type") in {"object", "array", "string", "integer", "boolean"}, path


def test_defaults_fit_their_own_fields() -> None:
    for path, schema in FIELDS.items():
        if "default" in schema and schema["default"] != {}:
            jsonschema.validate(schema["default"], schema)
            assert not path.startswith(".status")


def test_strings_and_lists_of_the_spec_are_bounded() -> None:
    """CEL rules are refused by a cluster if what they look at has no bound."""
    for path, schema in FIELDS.items():
        if path.startswith(".spec") and schema["type"] == "string":
            assert "enum" in schema or "maxLength" in schema, path
        if path.startswith(".spec") and schema["type"] == "array":
            assert "maxItems" in schema, path


def test_phases_are_the_controllers() -> None:
    assert FIELDS[".status.phase"]["enum"] == [phase.value for phase in JobPhase]


def test_columns_and_subresources() -> None:
    version = load_crd()["spec"]["versions"][0]
    columns = [(column["name"], column.get("priority", 0)) for column in version["additionalPrinterColumns"]]
    shown = [name for name, priority in columns if not priority]
    assert shown == ["Ready", "Phase", "Epoch", "Last checkpoint", "Lag", "Rows/s", "Restarts", "Age"]
    assert set(version["subresources"]) == {"status", "scale"}


@pytest.mark.slow
def test_an_installed_wheel_carries_the_crd(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--wheel", "-q", "-o", tmp_path], cwd=ROOT, check=True, timeout=200)
    wheel = next(tmp_path.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("epochal/control/crds/streamingjobs.epochal.dev.yaml")
        entry_points = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert b"epochal = epochal.cli:main" in archive.read(entry_points)
    assert yaml.safe_load(text) == load_crd()
