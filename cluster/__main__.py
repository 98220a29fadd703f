"""The command line: `python -m cluster build|up|down|status|reload|secret`."""

import argparse
import fcntl
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cluster import namespaces
from cluster.errors import ClusterError
from cluster.gobuild import BuildError
from cluster.kind import KindCluster, docker_answers
from cluster.layout import Layout, layout
from cluster.node import Node
from cluster.progress import say, step
from cluster.s3 import secret_of


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument("command", choices=["build", "up", "down", "status", "reload", "secret"])
    parser.add_argument("--without-docker", action="store_true", help="plain processes, even if Docker could be used")
    options = parser.parse_args(arguments)
    command = options.command
    where = layout()
    cluster = _pick(where, without_docker=options.without_docker)
    try:
        if command == "status":
            well, lines = cluster.describe()
            print("\n".join(lines))
            return 0 if well else 1
        if command == "secret":
            print(json.dumps(secret_of(where), indent=2))
            return 0
        with _alone(where), step(f"cluster {command}"):
            if command == "build":
                Node(where).build()
            elif command == "up":
                cluster.up()
            elif command == "down":
                cluster.down()
            else:
                cluster.reload()
    except (ClusterError, BuildError) as error:
        say(str(error))
        return 1
    return 0


def _pick(where: Layout, *, without_docker: bool) -> Node | KindCluster:
    """The cluster that runs, or the kind of cluster that this machine can have."""
    if without_docker or namespaces.find(where.home) or not docker_answers():
        return Node(where)
    return KindCluster(where)


@contextmanager
def _alone(where: Layout) -> Iterator[None]:
    """Only one of these at a time; the lock goes with the process, however it ends."""
    where.home.mkdir(parents=True, exist_ok=True)
    with (where.home / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command on the same cluster to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
