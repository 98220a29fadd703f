"""``epochal suspend``, ``resume``, ``restart`` and ``scale``: what a person asks of a running job."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from epochal.cli.cluster.jobs import ClusterJob
from epochal.cli.errors import UserError
from epochal.cli.jobs import on_cluster
from epochal.cli.local import JobDirectory
from epochal.cli.targets import Target, target_options
from epochal.control.durations import parse_duration
from epochal.control.labels import RESTART_ANNOTATION
from epochal.control.lifecycle import AT_REST

Status = Mapping[str, Any]
Test = Callable[[Status], bool]


def _any(_: Status) -> bool:
    return True


class Duration(click.ParamType[float]):
    """A duration as manifests write it."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def wait_options(command: Any) -> Any:
    command = click.option(
        "--timeout", type=Duration(), default="10m", show_default=True, help="How long --wait waits."
    )(command)
    return click.option("--wait", is_flag=True, help="Return when it is done; fail if it does not get there.")(command)


@click.command()
@target_options
@wait_options
def suspend(target: Target, wait: bool, timeout: float) -> None:
    """Take a last checkpoint and stop the driver. Nothing is lost: `epochal resume` goes on from it.

    TARGET is a job's name on the cluster, or the manifest file of a job that `epochal run` is running here.
    """
    if target.directory is not None:
        _suspend_local(target.directory, wait=wait, timeout=timeout)
        return
    job = on_cluster(target, "suspend", "name its manifest file")
    job.patch({"spec": {"state": "Suspended"}})
    click.echo(f"{job.name} takes a last checkpoint and stops")
    if wait:
        status = job.wait_for(lambda status: status.get("phase") in AT_REST, "stopped", timeout)
        click.echo(f"{job.name} has stopped at epoch {status.get('epoch')}")


def _suspend_local(directory: JobDirectory, *, wait: bool, timeout: float) -> None:
    pid = directory.runner()
    if pid is None:
        raise UserError("no `epochal run` runs this job here: there is nothing to stop")
    os.kill(pid, signal.SIGTERM)
    click.echo(f"`epochal run` (process {pid}) takes a last checkpoint and stops")
    end = time.monotonic() + timeout
    while wait and directory.runner() == pid:
        if time.monotonic() > end:
            raise UserError(f"process {pid} still runs after {timeout:.0f} s: `epochal status` says what it does")
        time.sleep(0.1)


@click.command()
@target_options
@wait_options
def resume(target: Target, wait: bool, timeout: float) -> None:
    """Start a suspended job again, from its last checkpoint."""
    job = on_cluster(target, "resume", "use `epochal run`: it goes on from the latest epoch")
    job.patch({"spec": {"state": "Running"}})
    click.echo(f"{job.name} starts")
    if wait:
        _wait_until_ready(job, timeout)


@click.command()
@target_options
@wait_options
def restart(target: Target, wait: bool, timeout: float) -> None:
    """Take a last checkpoint and start a new driver. A job that has failed starts at once.

    Use it after you have changed a program in a ConfigMap or an image behind a tag.
    """
    job = on_cluster(target, "restart", "stop `epochal run` with Ctrl-C and run it again")
    before = int(job.status().get("generation") or 0)
    job.patch({"metadata": {"annotations": {RESTART_ANNOTATION: datetime.now(UTC).isoformat(timespec="milliseconds")}}})
    click.echo(f"{job.name} takes a last checkpoint, and a new driver starts")
    if wait:
        newer = lambda status: int(status.get("generation") or 0) > before  # noqa: E731 - said twice
        _wait_until_ready(job, timeout, newer, begun=newer)


@click.command()
@target_options
@click.option("--replicas", type=click.IntRange(1, 10_000), required=True, help="Number of executors.")
@wait_options
def scale(target: Target, replicas: int, wait: bool, timeout: float) -> None:
    """Set the number of executors. The job takes a last checkpoint and goes on with its state on all of them."""
    job = on_cluster(target, "scale", "set spec.sparkConf spark.master to local[N] in its manifest")
    before = (job.body()["spec"].get("executor") or {}).get("instances", 1)
    job.patch({"spec": {"executor": {"instances": replicas}}})
    if before == replicas:
        click.echo(f"{job.name} has {replicas} executors already")
        return
    click.echo(f"{job.name} goes from {before} to {replicas} executors, after a last checkpoint")
    if wait:
        _wait_until_ready(job, timeout, lambda status: status.get("executors") == replicas)


def _wait_until_ready(job: ClusterJob, timeout: float, also: Test = _any, begun: Test = _any) -> None:
    status = job.wait_for(lambda status: _is_ready(status) and also(status), "running", timeout, begun)
    click.echo(f"{job.name} runs: generation {status.get('generation')}, epoch {status.get('epoch')}")


def _is_ready(status: Status) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])
