"""The table of outages: what jobs on a real cluster do while something is away, and how long until they go on.

Needs the cluster of `make cluster`. While it runs, nobody else should use that: its API server is stopped for a while.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.outages.faults import OUTAGES, TOGETHER, Outage, Scene, edited
from benchmarks.outages.jobs import Sink, let_go, make_namespace
from benchmarks.outages.operators import ChartOperators, Operators, ProcessOperators
from benchmarks.outages.page import NOW, page, picture
from benchmarks.outages.results import TRIAL, Result, load, save
from benchmarks.outages.rounds import Fleet, Rounds, joined, say
from benchmarks.outages.servers import servers
from benchmarks.outages.watching import Watcher
from benchmarks.report import PAGES, conditions, write_page
from cluster.images import PROJECT
from cluster.layout import layout
from cluster.node import Node
from examples.cluster.live_job import Cluster

TRIES = 10


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outages", description=__doc__)
    names = [outage.name for outage in OUTAGES]
    parser.add_argument("--only", action="append", choices=names, help="these outages, and no others")
    parser.add_argument("--without", action="append", choices=names, default=[], help="not these")
    parser.add_argument("--tries", type=int, default=TRIES, help=f"of each outage (default: {TRIES})")
    parser.add_argument("--seconds", type=float, help="how long outages last, instead of what the table wants")
    parser.add_argument("--patience", type=float, default=900, help="seconds to wait for recovery (default: 900)")
    parser.add_argument("--resume", action="store_true", help="leave out outages whose figures are there")
    parser.add_argument("--label", default=NOW, help="what is measured: the page shows `now`, and `before` below it")
    parser.add_argument("--namespace", default="outages", help="where the jobs run (default: outages)")
    parser.add_argument(
        "--checkout",
        action="store_true",
        help="operators as processes of this checkout, and its spark_app in pods, instead of the chart and its images",
    )
    parser.add_argument("--page", action="store_true", help="only write the page from the figures that are there")
    given = parser.parse_args(arguments)
    if given.tries % 2:
        parser.error("--tries must be even: one half of the jobs writes to PostgreSQL, the other to Kafka")
    return given


def groups(chosen: list[Outage]) -> list[list[Outage]]:
    """Outages that happen at the same time, in the order in which they are done."""
    together = [outage for outage in chosen if outage.name in TOGETHER]
    apart = [[outage] for outage in chosen if outage.name not in TOGETHER]
    return [*apart, together] if together else apart


def main(arguments: list[str]) -> int:
    given = options(arguments)
    # Whoever ends it wants the jobs and the servers ended, too; also where an interrupt is ignored in the background.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit("ended before its time"))
    full = given.seconds is None and given.tries == TRIES
    directory = PAGES if full else TRIAL
    if not given.page:
        measure(given, directory)
    if full or given.page:
        kept, order = load(PAGES), [outage.name for outage in OUTAGES]
        (PAGES / "outages.svg").write_text(picture(kept, order))
        print(write_page("outages", page(kept, order, conditions())))
    bad = [name for name, one in load(directory).get(given.label, {}).items() if not well(one)]
    if bad:
        print(f"jobs did not go on by themselves, or not with the right rows: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


def well(one: Result) -> bool:
    return one.recovered == one.right == len(one.tries)


def measure(given: argparse.Namespace, directory: Path) -> None:
    done = load(directory).get(given.label, {}) if given.resume else {}
    left_out = {*given.without, *done}
    wanted = given.only or [outage.name for outage in OUTAGES]
    chosen = [outage for outage in OUTAGES if outage.name in wanted and outage.name not in left_out]
    if given.seconds is not None:
        chosen = [replace(outage, seconds=min(outage.seconds, given.seconds)) for outage in chosen]
    if not chosen:
        return
    with ExitStack() as stack:
        say("S3, PostgreSQL and Kafka are started")
        running = stack.enter_context(servers())
        cluster, node = Cluster(), Node(layout())
        cluster.s3 = running.access()
        namespace = f"{given.namespace}-{int(time.time()) % 1_000_000:06d}"
        make_namespace(cluster, namespace, running)
        stack.callback(_remove, cluster, namespace)
        image = f"localhost/epochal-outages:{namespace}"
        node.containerd.tag(PROJECT["spark"], image)
        stack.callback(node.containerd.forget, image)
        logs = Path(tempfile.gettempdir()) / namespace
        operators: Operators = ProcessOperators(cluster, namespace, logs) if given.checkout else ChartOperators(cluster)
        stack.callback(operators.close)
        operators.start()
        scene = Scene(cluster, node, running, operators, namespace, image, PROJECT["spark"])
        watcher = Watcher(cluster, namespace)
        watcher.start()
        stack.callback(watcher.close)
        fleet = Fleet(scene, given.tries // 2, checkout=given.checkout)
        rounds = Rounds(scene, watcher, patience=given.patience)
        for group in groups(chosen):
            results = run_group(group, fleet, rounds)
            found = conditions(jobs=len(fleet.jobs), load_after=round(os.getloadavg()[0], 1))
            save(directory, given.label, {name: replace(one, conditions=found) for name, one in results.items()})
            if touched := edited(cluster, namespace):
                raise SystemExit(f"somebody has edited {', '.join(touched)}: these figures are void")


def run_group(group: list[Outage], fleet: Fleet, rounds: Rounds) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for number in range(max(outage.rounds for outage in group)):
        now = [outage for outage in group if number < outage.rounds]
        concerned = {outage.concerned for outage in now}
        fleet.fill([sink for sink in Sink if None in concerned or sink in concerned])
        for name, one in rounds.run(now, fleet.jobs).items():
            results[name] = joined(results[name], one) if name in results else one
            _tell(results[name])
            fleet.drop([each.job for each in one.tries if each.seconds is None or each.wrong])
    return results


def _tell(one: Result) -> None:
    say(
        f"{one.title}: {one.recovered} of {len(one.tries)} went on, p50 {one.at(0.5):.1f} s, p95 {one.at(0.95):.1f} s, "
        f"rows right: {one.right} of {len(one.tries)}"
    )


def _remove(cluster: Cluster, namespace: str) -> None:
    """The jobs' finalizers wait for a last checkpoint that nobody needs."""
    where = f"--namespace={namespace}"
    cluster.kubectl("delete", where, "streamingjobs", "--all", "--wait=false")
    for job in cluster.get(where, "streamingjobs")["items"]:
        let_go(cluster, where, job["metadata"]["name"])
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
