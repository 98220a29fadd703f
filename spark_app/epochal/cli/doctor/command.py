"""``epochal doctor``."""

import functools
import sys
from collections.abc import Iterator

import click

from epochal.cli.cluster.client import ClusterError, load_cluster
from epochal.cli.cluster.jobs import ClusterJob
from epochal.cli.doctor import cluster_checks, job_checks
from epochal.cli.doctor.finding import Finding, Level, problem
from epochal.cli.doctor.seen import ClusterFacts
from epochal.cli.doctor.store_check import check_store
from epochal.cli.errors import UserError
from epochal.cli.output import print_data
from epochal.cli.targets import cluster_options, complete_jobs, store_options
from epochal.protocol.store import StoreOptions

EXIT_PROBLEM = 1

_STYLES = {Level.OK: "green", Level.UNKNOWN: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "red"}


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_jobs)
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Check the jobs of all namespaces.")
@click.option(
    "--store",
    "with_store",
    is_flag=True,
    help="Check each job's store, too, with your own credentials: writes a small object and deletes it.",
)
@click.option("-o", "--output", "how", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
@store_options
def doctor(
    name: str | None,
    namespace: str | None,
    context: str | None,
    all_namespaces: bool,
    with_store: bool,
    how: str,
    options: StoreOptions,
) -> None:
    """Find what is wrong with a cluster, its operator and its jobs, and say what to do.

    Checks the CRD, the operator, rights, quotas, and the jobs of a namespace, or only the job NAME. It changes
    nothing on the cluster.

    \b
    Exit codes
      0  no problem was found
      1  there are problems
      2  invalid option, or no kubeconfig
    """
    if name is not None and all_namespaces:
        raise UserError("give a NAME or --all-namespaces, not both")
    cluster = load_cluster(context, namespace)
    seen = ClusterFacts(cluster, None if all_namespaces else [cluster.namespace], name)
    findings = list(examine(seen, options if with_store else None))
    if how == "text":
        _print(findings)
    else:
        rows = [
            {"name": one.name, "level": one.level, "about": one.about, "message": one.message, "do": one.do}
            for one in findings
        ]
        print_data(rows, how)
    if any(one.level is Level.PROBLEM for one in findings):
        sys.exit(EXIT_PROBLEM)


def examine(seen: ClusterFacts, store: StoreOptions | None = None) -> Iterator[Finding]:
    try:
        for check in cluster_checks.CHECKS:
            yield from check(seen)
        if seen.job_is_missing:
            do = "epochal get -A lists all jobs."
            yield problem("JobMissing", f"job {seen.cluster.namespace}/{seen.job}", "there is no such job", do)
        for job in seen.jobs:
            yield from job_checks.job(seen, job)
            if store is not None:
                metadata = job["metadata"]
                one = ClusterJob(seen.cluster, metadata["namespace"], metadata["name"])
                about = f"store of job {one.namespace}/{one.name}"
                yield from check_store(functools.partial(one.store, store), about)
    except ClusterError as error:
        # Whatever else is wrong cannot be seen.
        do = "kubectl cluster-info shows where the context points, and whether it answers."
        yield problem("ClusterUnreachable", "cluster", error.message, do)
    yield from seen.unseen


def _print(findings: list[Finding]) -> None:
    for one in findings:
        head = f"{one.level:<8}" if one.level is Level.OK else f"{one.level:<8} {one.name}:"
        click.echo(f"{click.style(head, fg=_STYLES[one.level])} {one.about}: {one.message}")
        if one.do:
            click.echo(f"         → {one.do}")
    problems, unseen = (sum(one.level is level for one in findings) for level in (Level.PROBLEM, Level.UNKNOWN))
    found = f"{problems} problem{'' if problems == 1 else 's'} found" if problems else "No problem found"
    if unseen:
        checks = f"{unseen} check{' was' if unseen == 1 else 's were'} not possible"
        found = f"{found}; {checks}" if problems else f"{checks}; the others found no problem"
    click.echo(f"\n{found}")
