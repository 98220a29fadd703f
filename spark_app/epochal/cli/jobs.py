"""``epochal get`` and ``epochal describe``: jobs, wherever they run."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from epochal.cli.cluster.client import ClusterError, ForbiddenError, KubeContext, load_cluster
from epochal.cli.cluster.jobs import ClusterJob, condition, event_time
from epochal.cli.cluster.pods import container_states, trouble
from epochal.cli.errors import UserError
from epochal.cli.local import JobDirectory
from epochal.cli.manifests import DEFAULT_STATE_DIR
from epochal.cli.output import age, console, filled_table, format_option, print_data
from epochal.cli.targets import Target, cluster_options, complete_jobs, target_options
from epochal.cli.view import size
from epochal.control.labels import PLURAL

_COLUMNS = ("NAME", "READY", "PHASE", "EPOCH", "LAST CHECKPOINT", "LAG", "ROWS/S", "RESTARTS", "AGE")
_WIDE = ("GENERATION", "EXECUTORS", "SIZE", "DURATION", "MESSAGE")

WATCH_PAUSE = 1.0
WATCH_TRIES = 30
"""Failures in a row."""

Body = Mapping[str, Any]


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_jobs)
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", help="Label selector, such as team=web.")
@click.option("-w", "--watch", is_flag=True, help="Go on: print a job again whenever it changes.")
@click.option(
    "--local", is_flag=True, help="List the jobs that were run on this machine, by --state-dir, not a cluster's."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="The --state-dir of `epochal run`, for --local.",
)
@format_option
def get(
    name: str | None,
    namespace: str | None,
    context: str | None,
    all_namespaces: bool,
    selector: str,
    watch: bool,
    local: bool,
    state_dir: Path,
    how: str,
) -> None:
    """List the jobs of a cluster, or show the job NAME."""
    if local:
        _show_local(state_dir, name, how)
        return
    if name is not None and all_namespaces:
        raise UserError("give a NAME or --all-namespaces, not both")
    cluster = load_cluster(context, namespace)
    if name is not None:
        bodies = [ClusterJob(cluster, cluster.namespace, name).body()]
    else:
        bodies = cluster.list(PLURAL, None if all_namespaces else cluster.namespace, labelSelector=selector)
    if how in ("json", "yaml"):
        print_data(bodies[0] if name else {"apiVersion": "v1", "kind": "List", "items": bodies}, how)
        return
    if not bodies and not watch:
        where = "the cluster" if all_namespaces else f"namespace {cluster.namespace}"
        click.echo(f"There is no StreamingJob in {where}")
        return
    wide = how == "wide"
    console().print(_table(bodies, wide=wide, namespaces=all_namespaces))
    if watch:
        shown = {body["metadata"].get("uid"): _row(body, wide=True) for body in bodies}
        only = {"fieldSelector": f"metadata.name={name}"} if name else {"labelSelector": selector}
        for event in _changes(cluster, None if all_namespaces else cluster.namespace, only):
            body = event["object"]
            row = _row(body, wide=True)
            if event["type"] == "DELETED" or shown.get(body["metadata"].get("uid")) != row:
                shown[body["metadata"].get("uid")] = row
                table = _table([body], wide=wide, namespaces=all_namespaces)
                table.show_header = False
                console().print(table)


def _changes(cluster: KubeContext, namespace: str | None, only: Mapping[str, str]) -> Iterator[Any]:
    """For ever: a watch begins with all that there is, so one that has ended or broken is begun anew."""
    failures = 0
    while True:
        try:
            for event in cluster.watch(PLURAL, namespace, **only):
                failures = 0
                yield event
        except ClusterError as error:
            failures += 1
            if not error.is_outage or failures > WATCH_TRIES:
                raise
        time.sleep(WATCH_PAUSE)


def _table(bodies: list[Any], *, wide: bool, namespaces: bool) -> Table:
    columns = (*(("NAMESPACE",) if namespaces else ()), *_COLUMNS, *(_WIDE if wide else ()))
    rows = (
        (*((body["metadata"]["namespace"],) if namespaces else ()), *_row(body, wide=wide))
        for body in sorted(bodies, key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))
    )
    return filled_table(columns, rows)


def _row(body: Body, *, wide: bool) -> tuple[object, ...]:
    status = body.get("status") or {}
    last = status.get("lastCheckpoint") or {}
    phase = "Deleting" if body["metadata"].get("deletionTimestamp") else status.get("phase", "Pending")
    short = (
        body["metadata"]["name"],
        condition(body, "Ready").get("status", "Unknown"),
        phase,
        status.get("epoch"),
        age(last.get("finished")),
        status.get("lag"),
        status.get("rowsPerSecond"),
        (status.get("restarts") or {}).get("total"),
        age(body["metadata"].get("creationTimestamp")),
    )
    if not wide:
        return short
    written = size(last["bytes"]) if "bytes" in last else ""
    more = (status.get("generation"), status.get("executors"), written, last.get("duration"), why(body))
    return (*short, *more)


def why(body: Body) -> str:
    """What there is to say about a job: what needs a person comes first."""
    stalled = condition(body, "Stalled")
    if stalled.get("status") == "True":
        return f"{stalled.get('reason')}: {stalled.get('message')}"
    return str((body.get("status") or {}).get("message") or "")


def _show_local(state_dir: Path, name: str | None, how: str) -> None:
    found = []
    for path in sorted(state_dir.glob("*/*/record.json")):
        namespace, job = path.parts[-3:-1]
        record = JobDirectory(state_dir, namespace, job).load_record()
        if record is not None and name in (None, job):
            found.append((namespace, job, record))
    if how in ("json", "yaml"):
        print_data([{"namespace": one[0], "name": one[1], "record": msgspec.to_builtins(one[2])} for one in found], how)
        return
    if not found:
        click.echo(f"No job has been run here: {state_dir} holds none")
        return
    rows = (
        (namespace, job, record.phase, record.checkpoints.newest_completed, record.restarts.total, record.message)
        for namespace, job, record in found
    )
    console().print(filled_table(("NAMESPACE", "NAME", "PHASE", "EPOCH", "RESTARTS", "MESSAGE"), rows))


# --- describe ---------------------------------------------------------------------------------------------------------


@click.command()
@target_options
@format_option
def describe(target: Target, how: str) -> None:
    """Show everything about a job: conditions, checkpoints, restarts, pods and events.

    TARGET is a job's name on the cluster. For a job on this machine, `epochal status job.yaml` shows all there is.
    """
    job = on_cluster(target, "describe", "`epochal status` shows all there is of it")
    body = job.body()
    pods, events = _or_nothing(job.pods), _or_nothing(job.events)
    if how in ("json", "yaml"):
        print_data({"job": body, "pods": pods, "events": events}, how)
        return
    for line in _facts(body):
        click.echo(line)
    _section("Conditions", ("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"), _conditions(body))
    _section("Checkpoints", ("EPOCH", "STATE", "GENERATION", "FINISHED", "DURATION", "SIZE", "MESSAGE"), _history(body))
    _section("Pods", ("NAME", "PHASE", "READY", "RESTARTS", "NODE", "AGE", "MESSAGE"), map(_pod, pods))
    _section("Events", ("LAST SEEN", "TYPE", "REASON", "COUNT", "MESSAGE"), map(_event, events[-20:]))


def on_cluster(target: Target, command: str, instead: str) -> ClusterJob:
    if target.cluster is None:
        raise UserError(f"`epochal {command}` is about jobs on a cluster; for a job on this machine, {instead}")
    return target.cluster


def _or_nothing(ask: Any) -> list[Any]:
    """What a person may not see is left out: the rest is worth showing."""
    try:
        found: list[Any] = ask()
        return found
    except ForbiddenError as error:
        click.echo(f"epochal: {error.message}", err=True)
        return []


def _facts(body: Body) -> Iterator[str]:
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    storage = (spec.get("checkpoint") or {}).get("storage") or {}
    restarts = status.get("restarts") or {}
    facts = {
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "Phase": status.get("phase", "Pending") + (f": {status['message']}" if status.get("message") else ""),
        "Wanted": spec.get("state", "Running"),
        "Image": spec.get("image") or "(the operator's default)",
        "Store": storage.get("uri"),
        "Interval": (spec.get("checkpoint") or {}).get("interval"),
        "Generation": status.get("generation"),
        "Epoch": status.get("epoch"),
        "Executors": f"{status.get('executors', 0)} of {(spec.get('executor') or {}).get('instances', 1)}",
        "Lag": status.get("lag"),
        "Rows/s": status.get("rowsPerSecond"),
        "Late rows": status.get("lateRows"),
        "Restarts": str(restarts.get("total", 0))
        + (f", the last because: {restarts['message']}" if restarts.get("message") else ""),
        "Next start": restarts.get("notBefore"),
    }
    yield from (f"{name + ':':<12} {value}" for name, value in facts.items() if value not in (None, ""))


def _section(title: str, columns: tuple[str, ...], rows: Any) -> None:
    found = list(rows)
    click.echo(f"\n{title}:" + ("" if found else " none"))
    if found:
        console().print(filled_table(columns, found))


def _conditions(body: Body) -> Iterator[tuple[object, ...]]:
    for one in (body.get("status") or {}).get("conditions") or []:
        yield one["type"], one["status"], age(one.get("lastTransitionTime")), one.get("reason"), one.get("message")


def _history(body: Body) -> Iterator[tuple[object, ...]]:
    status = body.get("status") or {}
    if flight := status.get("inFlight"):
        done = f"{flight['operatorsDone']}/{flight['operatorsTotal']} operators" if "operatorsDone" in flight else ""
        yield flight["epoch"], "InProgress", flight.get("generation"), "", "", "", done
    for one in status.get("history") or []:
        written = size(one["bytes"]) if "bytes" in one else ""
        ago = f"{age(one.get('finished'))} ago"
        yield one["epoch"], one["state"], one.get("generation"), ago, one.get("duration"), written, one.get("message")


def _pod(pod: Body) -> tuple[object, ...]:
    states = container_states(pod)
    ready = f"{sum(state.ready for state in states)}/{len(states)}"
    restarts = sum(state.restarts for state in states)
    phase = "Terminating" if pod["metadata"].get("deletionTimestamp") else (pod.get("status") or {}).get("phase")
    node = (pod.get("spec") or {}).get("nodeName")
    return (
        pod["metadata"]["name"],
        phase,
        ready,
        restarts,
        node,
        age(pod["metadata"].get("creationTimestamp")),
        trouble(pod),
    )


def _event(event: Body) -> tuple[object, ...]:
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    return age(event_time(event)), event.get("type"), event.get("reason"), count, event.get("message")
