"""``epochal report``: one archive with what a maintainer needs to see, and nothing that must stay with its owner."""

import io
import json
import os
import platform
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import yaml

from epochal.cli.cluster.client import ClusterError, JsonObject, KubeContext, path
from epochal.cli.cluster.jobs import ClusterJob
from epochal.cli.doctor.command import examine
from epochal.cli.doctor.seen import CRD, OPERATOR, ClusterFacts
from epochal.cli.errors import UserError
from epochal.cli.files import last_lines
from epochal.cli.local import JobDirectory
from epochal.cli.redaction import Redaction, secret_values
from epochal.cli.targets import Target, target_options
from epochal.control.labels import JOB_LABEL, PLURAL
from epochal.version import __version__

TAIL = 2000
MODE = 0o600
PACKAGES = ("epochal", "pyspark", "obstore", "pyarrow", "duckdb", "kubernetes", "click", "msgspec", "kopf")
README = """\
A report of Epochal, made by `epochal report`. Values that are or look like secrets are replaced by <redacted>;
Secrets themselves are not in it. Look through it before you pass it on: it has your manifests, the names of your
hosts, and the ends of your logs.
"""

Files = dict[str, str]


@click.command()
@target_options
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Archive, .tar.gz or .zip.")
@click.option("--tail", type=click.IntRange(min=1), default=TAIL, show_default=True, help="Last lines of each log.")
def report(target: Target, output: Path | None, tail: int) -> None:
    """Pack what a maintainer needs to know about a job into an archive, without secrets.

    \b
    On the cluster: the job, its status, events, pods and their logs' ends, the operator and its log's end, the CRD,
    the findings of `epochal doctor`, and versions.
    On this machine: the manifest, the record, checkpoints, logs' ends, and versions.
    """
    name = target.paths.prefix.rstrip("/").replace("/", "-")
    output = output or Path(f"epochal-report-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    if not output.name.endswith((".tar.gz", ".tgz", ".zip")):
        raise UserError(f"--output {output}: end its name with .tar.gz or .zip")
    redaction = Redaction()
    if target.cluster is not None:
        files = _of_cluster(target.cluster, redaction, tail)
    elif target.directory is not None and target.local is not None:
        files = _of_directory(target.directory, target.local.path, redaction, tail)
    else:
        raise UserError("a store has nothing to report: name a job on the cluster or a manifest file")
    files |= {"README.txt": README, "versions.json": json.dumps(_versions(), indent=2)}
    # Last, because by now all values are known that must not be seen.
    clean = {where: redaction.text(text) for where, text in files.items()}
    try:
        _pack(output, clean)
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"{output}: {len(clean)} files, {sum(map(len, clean.values())):,} characters, without secrets")
    click.echo("Look through it before you pass it on")


def _versions() -> dict[str, str]:
    found = {"epochal": __version__, "python": sys.version.split()[0], "platform": platform.platform()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


# --- a job on the cluster ---------------------------------------------------------------------------------------------


def _of_cluster(job: ClusterJob, redaction: Redaction, tail: int) -> Files:
    """What the person may not see is left out, and that is said."""
    files: Files = {}
    missing: list[str] = []

    def put(name: str, ask: Callable[[], Any]) -> Any:
        try:
            found = ask()
        except ClusterError as error:
            missing.append(f"{name}: {error.message}")
            return None
        files[name] = found if isinstance(found, str) else _yaml(redaction.data(found))
        return found

    body, mine = job.body(), f"{JOB_LABEL}={job.name}"
    # First what must not be seen: of the job's own Secrets and of fields that are named like one.
    redaction.know(secret_values(body))
    _know_secrets(job, _secret_names(body["spec"]), redaction)
    files["job.yaml"] = _yaml(redaction.data(body))
    put("events.yaml", job.events)
    pods = put("pods.yaml", job.pods) or []
    redaction.know(secret_values(pods))
    # Each generation has a Secret of its own, which its pods name; those of older releases have one for all.
    _know_secrets(job, [*_secret_names(pods), f"{job.name}-token"], redaction)
    with suppress(ClusterError):
        for secret in job.cluster.list("secrets", job.namespace, labelSelector=mine):
            redaction.know_secret(secret)
    for pod in pods:
        _logs(put, job.cluster, pod, tail)
    put("configmaps.yaml", lambda: job.cluster.list("configmaps", job.namespace, labelSelector=mine))
    put("jobs.yaml", lambda: job.cluster.list("jobs", job.namespace, labelSelector=mine))
    put("quotas.yaml", lambda: job.cluster.list("resourcequotas", job.namespace))
    put("others.yaml", lambda: _phases(job))
    _operator(put, job.cluster, tail)
    put("doctor.yaml", lambda: _findings(job))
    if missing:
        files["missing.txt"] = "".join(f"{line}\n" for line in missing)
    return files


def _know_secrets(job: ClusterJob, names: Iterable[str], redaction: Redaction) -> None:
    """Read the Secrets that the job uses, if the person may, only to find their values elsewhere and leave them out."""
    for name in set(names):
        with suppress(ClusterError):
            redaction.know_secret(job.cluster.get("secrets", job.namespace, name))


def _secret_names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key in ("secretKeyRef", "secretRef", "credentialsSecret", "secret") and isinstance(part, Mapping):
                yield from (str(part[one]) for one in ("name", "secretName") if one in part)
            yield from _secret_names(part)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_names(item)


def _logs(put: Callable[[str, Callable[[], Any]], Any], cluster: KubeContext, pod: JsonObject, tail: int) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    for container in pod["spec"]["containers"]:
        query = {"container": container["name"], "tailLines": str(tail)}
        where = path("pods", namespace, name, "log")
        ask = lambda where=where, query=query: _text(cluster, where, query)  # noqa: E731 - each has its own
        put(f"logs/{name}-{container['name']}.log", ask)


def _text(cluster: KubeContext, where: str, query: Mapping[str, str]) -> str:
    return "".join(line.decode("utf-8", "replace") + "\n" for line in cluster.lines(where, query))


def _phases(job: ClusterJob) -> list[JsonObject]:
    """Other jobs of the namespace, in a line each: whether one is wrong, or all are."""
    return [
        {"name": one["metadata"]["name"], "phase": (one.get("status") or {}).get("phase"), "message": _message(one)}
        for one in job.cluster.list(PLURAL, job.namespace)
    ]


def _message(body: Mapping[str, Any]) -> str:
    return str((body.get("status") or {}).get("message") or "")


def _operator(put: Callable[[str, Callable[[], Any]], Any], cluster: KubeContext, tail: int) -> None:
    put("crd.yaml", lambda: cluster.get("customresourcedefinitions", None, CRD))
    put("operator.yaml", lambda: cluster.list("deployments", None, labelSelector=OPERATOR))
    for pod in put("operator-pods.yaml", lambda: cluster.list("pods", None, labelSelector=OPERATOR)) or []:
        _logs(put, cluster, pod, tail)
    put("kubernetes.yaml", lambda: cluster.json("GET", "/version"))


def _findings(job: ClusterJob) -> list[dict[str, str]]:
    seen = ClusterFacts(job.cluster, [job.namespace], job.name)
    return [
        {"name": one.name, "level": str(one.level), "about": one.about, "message": one.message} for one in examine(seen)
    ]


# --- a job on this machine --------------------------------------------------------------------------------------------


def _of_directory(directory: JobDirectory, manifest: Path, redaction: Redaction, tail: int) -> Files:
    """Tokens and the drivers' environment are not read."""
    documents = [one for one in yaml.safe_load_all(manifest.read_text(encoding="utf-8")) if one is not None]
    for document in documents:
        if document.get("kind") == "Secret":
            redaction.know_secret(document)
            redaction.know((document.get("stringData") or {}).values())
        redaction.know(secret_values(document))
    shown = [redaction.data(document) for document in documents if document.get("kind") != "Secret"]
    files: Files = {"job.yaml": "---\n".join(map(_yaml, shown))}
    for name in ("record.json", "checkpoints.jsonl", "cleanup.log"):
        _add(files, name, directory.root / name, tail)
    for generation in directory.generations():
        where = directory.driver(generation)
        with suppress(OSError):
            redaction.know([(where / "token").read_text()])
        for name in ("config.json", "exit", "cause", "driver.log"):
            _add(files, f"drivers/{generation:06d}/{name}", where / name, tail)
        config = f"drivers/{generation:06d}/config.json"
        with suppress(KeyError, ValueError):
            data = json.loads(files[config])
            redaction.know(secret_values(data))
            files[config] = json.dumps(redaction.data(data), indent=2)
    return files


def _add(files: Files, name: str, source: Path, tail: int) -> None:
    if source.is_file():
        files[name] = "".join(line + "\n" for line in last_lines(source, tail))


# --- the archive ------------------------------------------------------------------------------------------------------


def _yaml(data: Any) -> str:
    return yaml.safe_dump(json.loads(json.dumps(data, default=str)), sort_keys=False, allow_unicode=True, width=120)


def _pack(output: Path, files: Mapping[str, str]) -> None:
    """For the eyes of its owner, until they have looked through it."""
    root = output.name.removesuffix(".tar.gz").removesuffix(".tgz").removesuffix(".zip")
    with open(os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC, MODE), "w+b") as file:  # noqa: PTH123 - a descriptor
        os.fchmod(file.fileno(), MODE)  # of one that was there
        if output.suffix == ".zip":
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, text in sorted(files.items()):
                    archive.writestr(f"{root}/{name}", text)
            return
        with tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, text in sorted(files.items()):
                data = text.encode()
                info = tarfile.TarInfo(f"{root}/{name}")
                info.size, info.mtime, info.mode = len(data), int(time.time()), MODE
                tar.addfile(info, io.BytesIO(data))
