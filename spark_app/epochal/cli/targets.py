"""Which job a command is about: one of a manifest file, one of a cluster, or one that is only a store.

====================================  ====================================================================
TARGET                                the job
====================================  ====================================================================
``job.yaml``, ``./job``, ``a/b.yml``  of that manifest file, run on this machine
``s3://bucket/prefix``                of that store, named by ``--namespace`` and ``--job``
``clicks``                            of that name on the cluster, in ``-n`` and ``--context``
====================================  ====================================================================

A job's name has neither dots nor slashes, so what stands in the directory never changes what TARGET means.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from epochal.cli.cluster.client import load_cluster
from epochal.cli.cluster.jobs import JOB_NAME, ClusterJob
from epochal.cli.errors import UserError
from epochal.cli.local import JobDirectory
from epochal.cli.manifests import DEFAULT_STATE_DIR, LocalJob, load_job
from epochal.control.job import DEFAULT_NAMESPACE
from epochal.control.labels import PLURAL
from epochal.protocol.errors import ProtocolError
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import Store, StoreOptions, open_store

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Target:
    """``local`` and ``directory`` are those of a manifest file, ``cluster`` is a cluster's. The store is opened when
    somebody looks at it: most questions about a job on a cluster can do without."""

    paths: JobPaths
    open_store: Callable[[], Store]
    directory: JobDirectory | None = None
    local: LocalJob | None = None
    cluster: ClusterJob | None = None

    @cached_property
    def store(self) -> Store:
        return self.open_store()


def store_options(command: _F) -> _F:
    """Adds ``--endpoint`` and ``--region`` and gives the command ``options``."""

    @click.option("--endpoint", help="URL of an S3-compatible server. Leave it out for AWS.")
    @click.option("--region", help="S3 region.")
    @functools.wraps(command)
    def wrapped(*args: Any, endpoint: str | None, region: str | None, **kwargs: Any) -> Any:
        return command(*args, options=StoreOptions(endpoint=endpoint, region=region), **kwargs)

    return wrapped  # type: ignore[return-value]


def cluster_options(command: _F) -> _F:
    """Adds ``-n`` and ``--context``, as ``kubectl`` has them."""
    command = click.option("--context", help="Context of the kubeconfig. Defaults to the current one.")(command)
    return click.option(
        "-n", "--namespace", help="Namespace of the job. Defaults to the context's; for a store's URI, to default."
    )(command)


def target_options(command: _F) -> _F:
    """Adds the argument TARGET and what goes with it, and gives the command ``target``."""

    @click.argument("target", metavar="TARGET", shell_complete=complete_jobs)
    @cluster_options
    @click.option("--job", help="Name of the job, if TARGET is a URI. Not needed if the store has only one job.")
    @click.option(
        "--state-dir",
        type=click.Path(path_type=Path, file_okay=False),
        default=DEFAULT_STATE_DIR,
        show_default=True,
        help="The --state-dir of `epochal run`.",
    )
    @store_options
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        target: str,
        namespace: str | None,
        context: str | None,
        job: str | None,
        state_dir: Path,
        options: StoreOptions,
        **kwargs: Any,
    ) -> Any:
        try:
            if "://" in target:
                found = _from_uri(target, namespace or DEFAULT_NAMESPACE, job, options)
            elif JOB_NAME.fullmatch(target):
                found = from_cluster(target, namespace, context, options)
            else:
                found = _from_file(target, state_dir)
            return command(*args, target=found, **kwargs)
        except ProtocolError as error:
            raise UserError(str(error)) from error

    return wrapped  # type: ignore[return-value]


def complete_jobs(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the cluster's jobs, and files. A completion says nothing of what goes wrong."""
    found = [CompletionItem(incomplete, type="file")]
    try:
        cluster = load_cluster(context.params.get("context"), context.params.get("namespace"))
        names = [item["metadata"]["name"] for item in cluster.list(PLURAL, cluster.namespace)]
    except UserError:
        return found
    return [CompletionItem(name) for name in names if name.startswith(incomplete)] + found


def from_cluster(name: str, namespace: str | None, context: str | None, options: StoreOptions | None = None) -> Target:
    cluster = load_cluster(context, namespace)
    job = ClusterJob(cluster, cluster.namespace, name)
    return Target(
        paths=JobPaths(job.namespace, job.name),
        open_store=lambda: job.store(options or StoreOptions()),
        cluster=job,
    )


def _from_file(target: str, state_dir: Path) -> Target:
    if not Path(target).exists() and Path(target).suffix not in (".yaml", ".yml", ".json") and "/" not in target:
        raise UserError(
            f"{target} is no file, and no job on a cluster can have that name: write job.yaml, a name of a-z, 0-9 and "
            "'-', or a store's URI"
        )
    job = load_job(Path(target))
    storage = job.storage(state_dir)
    options = StoreOptions(endpoint=storage.endpoint, region=storage.region)
    return Target(
        paths=JobPaths(job.spec.namespace, job.spec.name),
        open_store=lambda: open_store(storage.uri, options, create=False),
        directory=JobDirectory(state_dir, job.spec.namespace, job.spec.name),
        local=job,
    )


def _from_uri(uri: str, namespace: str, job: str | None, options: StoreOptions) -> Target:
    store = open_store(uri, options, create=False)
    if job is not None:
        return Target(paths=JobPaths(namespace, job), open_store=lambda: store)
    jobs = sorted({tuple(name.split("/")[:2]) for name in store.list_names("") if name.count("/") >= 2})
    if len(jobs) == 1:
        return Target(paths=JobPaths(*jobs[0]), open_store=lambda: store)
    if not jobs:
        raise UserError(f"{uri} holds no job")
    names = ", ".join(f"--namespace {found[0]} --job {found[1]}" for found in jobs[:10])
    raise UserError(f"{uri} holds {len(jobs)} jobs: say which one: {names}")
