"""``python -m epochal_operator``: the operator, in a pod or on a laptop against any kubeconfig."""

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import kopf
from kubernetes.config import ConfigException
from prometheus_client import start_http_server

from epochal_operator import handlers
from epochal_operator.api import Api, ApiError, NotFoundError, load_client
from epochal_operator.controller import Controller
from epochal_operator.kubernetes_backend import Cluster, DriverAccess
from epochal_operator.leader import wait_to_lead
from epochal_operator.logs import configure_logs
from epochal_operator.metrics import Metrics
from epochal_operator.names import PLURAL
from epochal_operator.watching import Watched

logger = logging.getLogger("epochal_operator")

_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    namespaces: tuple[str, ...]
    tick: float
    driver_access: DriverAccess
    driver_timeout: float
    heartbeat: float
    default_image: str | None
    deletion_timeout: float
    threads: int
    metrics_port: int
    health_port: int
    own_namespace: str
    lease: str | None
    lease_namespace: str
    log_format: str
    debug: bool


def parse_options(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m epochal_operator",
        description="Keeps StreamingJobs running and runs their checkpoint timers. In a pod it uses the pod's service "
        "account, elsewhere the kubeconfig's current context (KUBECONFIG).",
        epilog="Each option can also be given as an environment variable: EPOCHAL_TICK for --tick, and so on.",
    )

    def option(name: str, *, default: object, help: str, **more: object) -> None:  # noqa: A002
        variable = "EPOCHAL_" + name.removeprefix("--").replace("-", "_").upper()
        given = os.environ.get(variable, default)
        parser.add_argument(name, default=given, help=f"{help} (default: {default})", **more)  # type: ignore[arg-type]

    inside = _IN_POD.is_file()
    option("--namespaces", default="", help="namespaces to look after, separated by commas; empty: all")
    option("--tick", type=_positive, default=1.0, help="seconds between two rounds of a job")
    option(
        "--driver-access",
        choices=[str(access) for access in DriverAccess],
        default=str(DriverAccess.DIRECT if inside else DriverAccess.PROXY),
        help="how drivers are reached: directly by their pod's address, or through the API server",
    )
    option("--driver-timeout", type=_positive, default=3.0, help="seconds that a driver has to answer")
    option("--heartbeat", type=_positive, default=10.0, help="seconds between two looks at a driver that runs well")
    option("--default-image", default=None, help="image of jobs that name none")
    option("--deletion-timeout", type=_positive, default=600.0, help="seconds that a deleted job has to stop")
    option("--threads", type=int, default=128, help="rounds that may run at the same time")
    option("--metrics-port", type=int, default=8080, help="port of /metrics; 0: none")
    option("--health-port", type=int, default=8081, help="port of /healthz; 0: none")
    option(
        "--own-namespace",
        default=_IN_POD.read_text() if inside else "",
        help="namespace of the operator's own pod, where it starts no job; empty: it has none",
    )
    option("--lease", default=None, help="name of the Lease that the one working operator holds; none: no election")
    option("--lease-namespace", default=_IN_POD.read_text() if inside else "default", help="where that Lease is")
    option(
        "--log-format", choices=["json", "plain"], default="json" if inside else "plain", help="how logs are written"
    )
    parser.add_argument("--debug", action="store_true", help="log a lot")
    given = vars(parser.parse_args(arguments))
    given["namespaces"] = tuple(name.strip() for name in given["namespaces"].split(",") if name.strip())
    given["driver_access"] = DriverAccess(given["driver_access"])
    return Options(**given)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 86400:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds between 0 and 86400")
    return number


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    configure_logs(options.log_format, debug=options.debug)
    metrics = Metrics()
    try:
        client = load_client(connections=options.threads)
    except ConfigException as error:
        print(f"epochal_operator: there is no cluster to talk to: {error}", file=sys.stderr)
        return 1
    api = Api(client, metrics.on_request)
    if options.metrics_port:
        start_http_server(options.metrics_port, registry=metrics.registry)
    try:
        _check_crd(api, options)
        if options.lease:
            wait_to_lead(client, namespace=options.lease_namespace, name=options.lease, health_port=options.health_port)
        watched = Watched(api, options.namespaces)
        watched.start()
    except ApiError as error:
        print(f"epochal_operator: {error}", file=sys.stderr)
        return 1
    cluster = Cluster(
        api=api,
        watched=watched,
        clock=time.time,
        access=options.driver_access,
        driver_timeout=options.driver_timeout,
        heartbeat=options.heartbeat,
    )
    controller = Controller(
        cluster,
        metrics,
        default_image=options.default_image,
        own_namespace=options.own_namespace,
        deletion_timeout=options.deletion_timeout,
    )
    registry = kopf.OperatorRegistry()
    pool = ThreadPoolExecutor(options.threads, thread_name_prefix="tick")
    handlers.register(registry, controller, pool=pool, tick=options.tick)
    handlers.register_probe(registry, metrics)
    kopf.run(
        registry=registry,
        settings=handlers.settings(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        liveness_endpoint=f"http://0.0.0.0:{options.health_port}/healthz" if options.health_port else None,
    )
    # Rounds that have not begun need not: whoever comes next has them.
    pool.shutdown(wait=False, cancel_futures=True)
    return 0


def _check_crd(api: Api, options: Options) -> None:
    try:
        for namespace in options.namespaces or (None,):
            api.list(PLURAL, namespace)
    except NotFoundError as error:
        raise ApiError("the cluster does not know StreamingJobs: apply crds/streamingjobs.epochal.dev.yaml") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
