"""Which job a command is about: a manifest file, or a store's URI and a name."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from epochal.cli.errors import UserError
from epochal.cli.local import JobDirectory
from epochal.cli.manifests import DEFAULT_STATE_DIR, load_job
from epochal.protocol.errors import ProtocolError
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import Store, StoreOptions, open_store

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    store: Store
    paths: JobPaths
    directory: JobDirectory | None


def store_options(command: _F) -> _F:
    """Adds ``--endpoint`` and ``--region`` and gives the command ``options``."""

    @click.option("--endpoint", help="URL of an S3-compatible server. Leave it out for AWS.")
    @click.option("--region", help="S3 region.")
    @functools.wraps(command)
    def wrapped(*args: Any, endpoint: str | None, region: str | None, **kwargs: Any) -> Any:
        return command(*args, options=StoreOptions(endpoint=endpoint, region=region), **kwargs)

    return wrapped  # type: ignore[return-value]


def target_options(command: _F) -> _F:
    """Adds the argument TARGET and what goes with it, and gives the command ``target``."""

    @click.argument("target", metavar="TARGET")
    @click.option("--namespace", default="default", show_default=True, help="Namespace of the job, if TARGET is a URI.")
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
        *args: Any, target: str, namespace: str, job: str | None, state_dir: Path, options: StoreOptions, **kwargs: Any
    ) -> Any:
        try:
            found = _from_uri(target, namespace, job, options) if "://" in target else _from_file(target, state_dir)
            return command(*args, target=found, **kwargs)
        except ProtocolError as error:
            raise UserError(str(error)) from error

    return wrapped  # type: ignore[return-value]


def _from_file(target: str, state_dir: Path) -> Target:
    job = load_job(Path(target))
    storage = job.storage(state_dir)
    return Target(
        store=open_store(storage.uri, StoreOptions(endpoint=storage.endpoint, region=storage.region), create=False),
        paths=JobPaths(job.spec.namespace, job.spec.name),
        directory=JobDirectory(state_dir, job.spec.namespace, job.spec.name),
    )


def _from_uri(uri: str, namespace: str, job: str | None, options: StoreOptions) -> Target:
    store = open_store(uri, options, create=False)
    if job is not None:
        return Target(store=store, paths=JobPaths(namespace, job), directory=None)
    jobs = sorted({tuple(name.split("/")[:2]) for name in store.list_names("") if name.count("/") >= 2})
    if len(jobs) == 1:
        return Target(store=store, paths=JobPaths(*jobs[0]), directory=None)
    if not jobs:
        raise UserError(f"{uri} holds no job")
    names = ", ".join(f"--namespace {found[0]} --job {found[1]}" for found in jobs[:10])
    raise UserError(f"{uri} holds {len(jobs)} jobs: say which one: {names}")
