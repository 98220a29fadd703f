"""What it costs that executors and driver encrypt what they say, and that the operator asks over TLS: ratios, of one
sitting.

Each setting is a process of its own with two executors beside it; they take turns, so that a machine that gets slower
does so for all.

    make bench-encryption
    python -m benchmarks.encryption --scale 0.05 --turns 1
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cost import Sample, once
from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from benchmarks.workloads import updating, windows
from epochal.control.driver_client import DriverClient, Trust
from epochal.protocol.control import SERVER_TOKEN_FILE
from epochal.protocol.epochs import Generation
from epochal.runtime.http.control_server import ControlServer
from epochal.runtime.http.server_tls import server_context
from epochal_operator.kubernetes.driver_keys import DriverKeys, new_keys
from epochal_operator.kubernetes.manifests.resources import keys_secret
from epochal_operator.kubernetes.manifests.spark_conf import spark_conf
from tests.operator.test_driver_tls import CONFIG_MAP, HOST, Engine
from tests.operator.test_resources import SPEC

EXECUTORS = 2
TURNS = 3
QUESTIONS = 500
CPU, BATCH, CHECKPOINT = "CPU s per million rows", "p50 of a batch, ms", "checkpoint of all state, s"
MEASURED = (CPU, BATCH, CHECKPOINT)

PLAIN = "nothing"
RPC = "what goes over the network (the default)"
ALL = "that, and Spark's files on local disks"
CTR = "what goes over the network, with Spark's own default cipher"


def settings(name: str) -> dict[str, str]:
    """As the operator has them, but that Spark takes a secret from a file on Kubernetes only."""
    if name == PLAIN:
        return {}
    ours = {
        key: value
        for key, value in spark_conf(SPEC, Generation(1)).items()
        if key.startswith(("spark.authenticate", "spark.network.crypto")) and not key.endswith(".file")
    }
    assert ours["spark.network.crypto.enabled"] == "true"
    extra = {ALL: {"spark.io.encryption.enabled": "true"}, CTR: {"spark.network.crypto.cipher": "AES/CTR/NoPadding"}}
    return ours | {"spark.authenticate.secret": "of this benchmark"} | extra.get(name, {})


def measure(name: str, scale: float) -> list[Sample]:
    """In this process: windows and looked-up state. The first of two equal ones warms up."""
    conf = {"spark.master": f"local-cluster[{EXECUTORS},1,1024]", "spark.executor.instances": str(EXECUTORS)}
    spark = spark_session("encryption", conf | settings(name))
    rows, keys = max(int(500_000 * scale), 50), max(int(500_000 * scale), 50)
    touched = (max(int(100_000 * scale), 50),) * 9
    works = {
        "windows": windows("encryption", (rows,) * 11, load=3, delays=(None,), partitions=EXECUTORS),
        "updating aggregate": updating((keys,), touched, goal=1, delays=(None,)),
    }
    found = [once(spark, workload) for workload in works.values() for _ in range(2)][1::2]
    spark.stop()
    return found


def in_a_process(name: str, scale: float) -> list[Sample]:
    command = [sys.executable, "-m", "benchmarks.encryption", "--setting", name, "--scale", str(scale)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed: see above")
    found: list[Sample] = json.loads(done.stdout.splitlines()[-1])
    return found


def control_channel(questions: int) -> dict[str, float]:
    """CPU milliseconds of both ends together for one question about a driver's status, plain and over TLS, and what the
    keys of a generation take to make. In turns of ten."""
    keys = new_keys(HOST)
    known = DriverKeys.of(keys_secret(SPEC, CONFIG_MAP, "keys", keys))
    with tempfile.TemporaryDirectory() as directory:
        for name, content in keys.items():
            Path(directory, name).write_bytes(content)
        token = Path(directory, SERVER_TOKEN_FILE).read_text()
        with (
            ControlServer(Engine(), token=token) as plain,
            ControlServer(Engine(), token=token, tls=server_context(Path(directory))) as secured,
        ):
            clients = {
                "plain": DriverClient(plain.address, token),
                "tls": DriverClient(secured.address, token, trust=Trust.of(known.authority, HOST)),
            }
            took = dict.fromkeys(clients, 0.0)
            for turn in range(questions // 10 + 1):
                for name, client in clients.items():
                    before = time.process_time()
                    for _ in range(10):
                        client.status()
                    took[name] += (time.process_time() - before) if turn else 0.0
    before = time.process_time()
    for _ in range(100):
        new_keys(HOST)
    made = (time.process_time() - before) / 100
    each = {name: seconds / (questions // 10 * 10) * 1e3 for name, seconds in took.items()}
    return each | {"keys": made * 1e3}


WORDS = """\
`make bench-encryption` measures this and writes this page: windows over 500,000 rows a batch, and an updating
aggregate with 500,000 keys of which a batch touches 100,000, each with two executors as processes of their own
(`local-cluster`). CPU is that of the driver, both executors and all Python workers. Each setting is a process; settings
take turns, or run side by side (`--side-by-side`). A ratio is the median of all turns; beside it, what single turns
gave. Look at these ranges: on a machine with other work only CPU can be compared, and times below 1 are noise. `scale`
shrinks rows and keys."""

CHANNEL = """\
One question about a driver's status, with a connection of its own, and both ends in one process: {plain:.2f} ms of CPU
without TLS, {tls:.2f} ms with it, a ratio of {ratio:.1f}. A driver that runs well is asked every 10 s. Tokens,
certificate and authority of a generation take {keys:.1f} ms to make."""


def page(found: dict[str, list[list[Sample]]], control: dict[str, float], facts: dict[str, Any]) -> str:
    rows = []
    for number, workload in enumerate(("windows", "updating aggregate")):
        base = {key: statistics.median(turn[number][key] for turn in found[PLAIN]) for key in MEASURED}
        for name, turns in found.items():
            cells = [workload, name]
            for key in MEASURED:
                values = [turn[number][key] / base[key] for turn in turns]
                cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            rows.append(cells)
    header = ["workload", "what is encrypted", "CPU", "p50 of a batch", "checkpoint of all state"]
    channel = CHANNEL.format(**control, ratio=control["tls"] / control["plain"])
    parts = ["# What encryption costs", WORDS, conditions_line(facts), table(header, rows), "## The control channel"]
    return "\n\n".join([*parts, channel])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encryption", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows and keys (default: 1)")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of each setting (default: {TURNS})")
    parser.add_argument("--only", action="append", choices=[RPC, CTR, ALL], help="these settings, beside none at all")
    parser.add_argument("--side-by-side", action="store_true", help="all settings at the same time, not in turns")
    parser.add_argument("--page", action="store_true", help="write the page whatever the scale")
    parser.add_argument("--setting", choices=[PLAIN, RPC, CTR, ALL], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.setting:
        print(json.dumps(measure(given.setting, given.scale)))
        return
    found: dict[str, list[list[Sample]]] = {name: [] for name in (PLAIN, *(given.only or (RPC, CTR, ALL)))}
    for turn in range(given.turns):
        # On a machine that others use, too, what runs at the same time meets the same of them.
        with ThreadPoolExecutor(len(found) if given.side_by_side else 1) as pool:
            for name, samples in zip(found, pool.map(partial(in_a_process, scale=given.scale), found), strict=True):
                found[name].append(samples)
                print(f"turn {turn + 1}: {name}: {samples}", file=sys.stderr, flush=True)
    control = control_channel(QUESTIONS)
    how = "side by side" if given.side_by_side else "in turns"
    facts = conditions(turns=given.turns, scale=given.scale, settings=how)
    write_json("encryption", {"conditions": facts, "turns": found, "control": control})
    text = page(found, control, facts)
    print(write_page("encryption", text) if given.scale == 1.0 or given.page else text)


if __name__ == "__main__":
    main(sys.argv[1:])
