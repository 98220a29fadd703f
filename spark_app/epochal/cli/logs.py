"""``epochal logs``: what a driver, an executor or a cleanup says."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import click

from epochal.cli.cluster.client import JsonObject, path
from epochal.cli.cluster.jobs import ClusterJob, generation_of
from epochal.cli.cluster.pods import trouble
from epochal.cli.errors import UserError
from epochal.cli.local import JobDirectory
from epochal.cli.targets import Target, target_options
from epochal.control.labels import Role
from epochal.protocol.epochs import Generation

_CONTAINERS = {Role.DRIVER: "driver", Role.EXECUTOR: "executor", Role.CLEANUP: "cleanup"}
POLL = 0.3
LOCAL_TAIL = 1000
LONGEST_TAIL = 16 * 1024 * 1024


@click.command()
@target_options
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    help="Last lines to show. Defaults to all, and to 1000 of a job on this machine.",
)
@click.option("--generation", type=click.IntRange(min=1), help="Generation of the driver. Defaults to the latest.")
@click.option("--executor", type=click.IntRange(min=1), metavar="N", help="Show the log of executor N.")
@click.option("--cleanup", is_flag=True, help="Show the log of the latest cleanup.")
def logs(
    target: Target, follow: bool, tail: int | None, generation: int | None, executor: int | None, cleanup: bool
) -> None:
    """Show the log of a job's driver, of one of its executors, or of its latest cleanup."""
    if executor is not None and cleanup:
        raise UserError("give --executor or --cleanup, not both")
    if target.directory is not None:
        if executor is not None:
            raise UserError("a job on this machine has no executors: its driver's log has everything")
        last = LOCAL_TAIL if tail is None else tail
        for line in _local_lines(target.directory, generation, cleanup=cleanup, follow=follow, tail=last):
            click.echo(line)
        return
    if target.cluster is None:
        raise UserError("a store has no logs: name a job on the cluster or a manifest file")
    role = Role.CLEANUP if cleanup else Role.EXECUTOR if executor is not None else Role.DRIVER
    pod = _chosen(target.cluster, role, generation, executor)
    query = {
        "container": _container(pod, _CONTAINERS[role]),
        "follow": "true" if follow else "",
        "tailLines": "" if tail is None else str(tail),
    }
    where = path("pods", target.cluster.namespace, pod["metadata"]["name"], "log")
    try:
        for data in target.cluster.cluster.lines(where, query, follow=follow):
            click.echo(data.decode("utf-8", "replace"))
    except UserError as error:
        raise UserError(f"pod {pod['metadata']['name']} has no log: {trouble(pod) or error.message}") from error


def _chosen(job: ClusterJob, role: Role, generation: int | None, executor: int | None) -> JsonObject:
    pods = [pod for pod in job.pods(role) if generation in (None, generation_of(pod)) or role is not Role.DRIVER]
    if executor is not None:
        pods = [pod for pod in pods if pod["metadata"]["name"].endswith(f"-exec-{executor}")]
        if generation is not None:
            pods = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{job.name}-{generation}-exec-")]
    if not pods:
        job.body()  # says so if there is no such job
        what = f"{role} of generation {generation}" if generation is not None else str(role)
        raise UserError(
            f"job {job.name} has no pod of a {what} now: `epochal describe {job.name}` shows its pods and why"
        )
    # Spark numbers executors; names of the newest generation sort last by time only.
    return max(pods, key=lambda pod: (generation_of(pod), pod["metadata"].get("creationTimestamp", "")))


def _container(pod: JsonObject, wanted: str) -> str:
    """A template may name Spark's own container otherwise: then it is the first."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    return wanted if wanted in names else str(names[0])


def _local_lines(
    directory: JobDirectory, generation: int | None, *, cleanup: bool, follow: bool, tail: int
) -> Iterator[str]:
    log: Path | None
    if cleanup:
        log = directory.root / "cleanup.log"
    elif generation is not None:
        log = directory.driver(Generation(generation)) / "driver.log"
    else:
        log = directory.newest_log()
    if log is None or not log.exists():
        raise UserError(
            f"there is no log{'' if log is None else f' {log}'}: the job has not run here, or not so far back"
        )
    with log.open("rb") as file:
        # What is there and what comes, from one place of the file on: no line is shown twice or left out.
        file.seek(0, os.SEEK_END)
        begin = max(0, file.tell() - LONGEST_TAIL)
        file.seek(begin)
        *lines, rest = file.read().split(b"\n")
        whole = lines[1:] if begin else lines
        for line in whole[max(0, len(whole) - tail) :]:
            yield line.decode("utf-8", "replace")
        while follow:
            rest += file.readline()
            if rest.endswith(b"\n"):
                yield rest[:-1].decode("utf-8", "replace")
                rest = b""
            else:
                time.sleep(POLL)
        if rest:
            yield rest.decode("utf-8", "replace")
