"""``python -m epochal_operator``: the operator, in a pod or on a laptop against any kubeconfig."""

import argparse
import logging
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

import kopf
from kubernetes.config import ConfigException
from prometheus_client import start_http_server

from epochal_operator import handlers
from epochal_operator.api import Api, ApiError, NotFoundError, load_client
from epochal_operator.controller import Controller
from epochal_operator.kubernetes.backend import Cluster, DriverAccess
from epochal_operator.kubernetes.nodes import Nodes
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import PLURAL
from epochal_operator.process.election import Timing
from epochal_operator.process.health import Health
from epochal_operator.process.leader import Leadership
from epochal_operator.process.reconcile_pools import ReconcilePools
from epochal_operator.reporting.logs import configure_logs
from epochal_operator.reporting.metrics import OperatorMetrics
from epochal_operator.stores.store_access import StoreRules, Stores

logger = logging.getLogger("epochal_operator")

LONGEST_ROUND_AT_END = 10.0
PAUSE = 1.0
REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
REFUSED_FOR = 30.0
"""Seconds for which an API server may refuse to know us before that is taken for a mistake."""

_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    namespaces: tuple[str, ...]
    tick: float
    driver_access: DriverAccess
    driver_timeout: float
    heartbeat: float
    require_driver_tls: bool
    default_image: str | None
    deletion_timeout: float
    threads: int
    metrics_port: int
    health_port: int
    own_namespace: str
    lease: str | None
    lease_duration: float
    lease_namespace: str
    own_identity_stores: tuple[str, ...]
    local_stores: bool
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
    option("--tick", type=_positive, default=1.0, help="seconds between two reconciliations of a job")
    option(
        "--driver-access",
        choices=[str(access) for access in DriverAccess],
        default=str(DriverAccess.DIRECT if inside else DriverAccess.PROXY),
        help="how drivers are reached: directly by their pod's address, or through the API server",
    )
    option("--driver-timeout", type=_positive, default=3.0, help="seconds that a driver has to answer")
    option("--heartbeat", type=_positive, default=10.0, help="seconds between two looks at a driver that runs well")
    parser.add_argument(
        "--require-driver-tls",
        action="store_true",
        default=os.environ.get("EPOCHAL_REQUIRE_DRIVER_TLS") == "true",
        help="do not talk to drivers whose image has a release before TLS: without this, they are asked without TLS",
    )
    option("--default-image", default=None, help="image of jobs that name none")
    option("--deletion-timeout", type=_positive, default=600.0, help="seconds that a deleted job has to stop")
    option("--threads", type=int, default=128, help="requests to the API server that may run at the same time")
    option("--metrics-port", type=int, default=8080, help="port of /metrics; 0: none")
    option("--health-port", type=int, default=8081, help="port of /healthz; 0: none")
    option(
        "--own-namespace",
        default=_IN_POD.read_text() if inside else "",
        help="namespace of the operator's own pod, where it starts no job; empty: it has none",
    )
    option("--lease", default=None, help="name of the Lease for leader election; without it there is no election")
    option(
        "--lease-duration",
        type=_positive,
        default=15.0,
        help="seconds after which another operator takes over a Lease that is not renewed; the holder renews it 7 "
        "times in that period, and exits if it could not for two thirds of it",
    )
    option("--lease-namespace", default=_IN_POD.read_text() if inside else "default", help="namespace of the Lease")
    option(
        "--own-identity-stores",
        default="",
        help="comma-separated URIs of stores that the operator may read with its own credentials, for jobs that name "
        "neither a Secret nor an endpoint; it reads all other stores with the job's credentials only",
    )
    parser.add_argument(
        "--local-stores",
        action="store_true",
        default=os.environ.get("EPOCHAL_LOCAL_STORES") == "true",
        help="allow file:// stores and endpoints on this machine: for tests on one machine",
    )
    option(
        "--log-format", choices=["json", "plain"], default="json" if inside else "plain", help="how logs are written"
    )
    parser.add_argument("--debug", action="store_true", help="log a lot")
    given = vars(parser.parse_args(arguments))
    given["namespaces"] = tuple(name.strip() for name in given["namespaces"].split(",") if name.strip())
    given["own_identity_stores"] = tuple(uri.strip() for uri in given["own_identity_stores"].split(",") if uri.strip())
    given["driver_access"] = DriverAccess(given["driver_access"])
    return Options(**given)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds between 0 and 86400")
    return number


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    configure_logs(options.log_format, debug=options.debug)
    # As the first process of a container it would otherwise not be ended by the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    metrics, health = OperatorMetrics(), Health()
    try:
        client = load_client(connections=options.threads)
    except ConfigException as error:
        print(f"epochal_operator: cannot connect to a cluster: {error}", file=sys.stderr)
        return 1
    api = Api(client, metrics.on_request)
    health.serve(options.health_port)
    if options.metrics_port:
        start_http_server(options.metrics_port, registry=metrics.registry)
    leadership = _leadership(options, metrics) if options.lease else None
    try:
        _wait_for_crd(api, options)
        if leadership is not None:
            health.add("lease", leadership.problem)
            _wait_to_lead(leadership)
            api.before_write = leadership.check
        return _work(api, options, metrics, health, leadership)
    except ApiError as error:
        print(f"epochal_operator: {error}", file=sys.stderr)
        return 1


def _leadership(options: Options, metrics: OperatorMetrics) -> Leadership:
    timing = Timing(options.lease_duration)
    # Connections of its own: renewing waits for nothing else.
    api = Api(
        load_client(connections=2), metrics.on_request, connect_timeout=timing.request, read_timeout=timing.request
    )
    return Leadership(api, namespace=options.lease_namespace, name=str(options.lease), timing=timing)


def _wait_to_lead(leadership: Leadership) -> None:
    try:
        leadership.wait()
    except BaseException:
        leadership.release()  # the signal to end may come just then
        raise


def _work(api: Api, options: Options, metrics: OperatorMetrics, health: Health, leadership: Leadership | None) -> int:
    """Look after the jobs until this process is asked to end."""
    rounds = ReconcilePools(before=leadership.check if leadership else lambda: None)
    try:
        watched = Watched(api, options.namespaces)
        health.add("watches", watched.problem)
        nodes = Nodes(api)
        if not options.namespaces:
            # Nodes are in no namespace: whose rights end at some does not see them.
            health.add("nodes", nodes.problem)
            nodes.start()
        watched.start()
        _run(api, watched, nodes, rounds, options, metrics, health)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
        # What a round is still at must not go on beside the next leader's.
        if rounds.close(LONGEST_ROUND_AT_END) and leadership is not None:
            leadership.release()
    return 0


def _run(
    api: Api,
    watched: Watched,
    nodes: Nodes,
    rounds: ReconcilePools,
    options: Options,
    metrics: OperatorMetrics,
    health: Health,
) -> None:
    cluster = Cluster(
        api=api,
        watched=watched,
        nodes=nodes,
        clock=time.time,
        stores=Stores(api, StoreRules(own_identity=options.own_identity_stores, local=options.local_stores)),
        access=options.driver_access,
        driver_timeout=options.driver_timeout,
        heartbeat=options.heartbeat,
        require_tls=options.require_driver_tls,
    )
    controller = Controller(
        cluster,
        metrics,
        default_image=options.default_image,
        own_namespace=options.own_namespace,
        deletion_timeout=options.deletion_timeout,
    )
    health.add("rounds", rounds.problem)
    registry = kopf.OperatorRegistry()
    handlers.register(registry, controller, rounds=rounds, tick=options.tick)
    handlers.register_health(registry, health)
    kopf.run(
        registry=registry,
        settings=handlers.settings(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
    )


def _wait_for_crd(api: Api, options: Options) -> None:
    """Returns when the cluster answers and knows StreamingJobs. An API server that is away is waited for: this
    process may have been started by its outage."""
    refused = 0.0
    while True:
        try:
            for namespace in options.namespaces or (None,):
                api.list(PLURAL, namespace)
            return
        except NotFoundError as error:
            raise ApiError(
                "the cluster does not know StreamingJobs: apply crds/streamingjobs.epochal.dev.yaml"
            ) from error
        except ApiError as error:
            # An API server that has just started refuses what it will allow a little later.
            refused += PAUSE if error.code in REFUSALS else 0.0
            outage = error.code is None or error.code == HTTPStatus.TOO_MANY_REQUESTS or error.code >= 500
            if refused > REFUSED_FOR or not (outage or error.code in REFUSALS):
                raise
            logger.warning("Waiting for the API server: %s", error)
            time.sleep(PAUSE)


def run() -> NoReturn:
    """End when it is over: threads of rounds that hang must not hold that up."""
    code: object = 1
    try:
        code = main(sys.argv[1:])
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    run()
