"""Several operators of which one works: whoever holds the Lease. Losing it ends the process, so that there are never
two; whatever the old one was at, the next one finds in the records."""

import contextlib
import http.server
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator

from kubernetes.client import ApiClient, CoordinationV1Api
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_WITHIN_SECONDS = 10
RETRY_SECONDS = 2
EXIT_LOST = 75


def wait_to_lead(client: ApiClient, *, namespace: str, name: str, health_port: int = 0) -> None:
    """Returns when this process holds the Lease; from then on a thread renews it.

    Until then ``/healthz`` is answered on ``health_port``: an operator that waits is healthy.
    """
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
    lock = LeaseLock(name, namespace, identity)  # type: ignore[no-untyped-call]
    lock.api_instance = CoordinationV1Api(client)
    leading = threading.Event()
    config = electionconfig.Config(  # type: ignore[no-untyped-call]
        lock,
        lease_duration=LEASE_SECONDS,
        renew_deadline=RENEW_WITHIN_SECONDS,
        retry_period=RETRY_SECONDS,
        onstarted_leading=leading.set,
        onstopped_leading=_lost,
    )
    election = leaderelection.LeaderElection(config)  # type: ignore[no-untyped-call]
    threading.Thread(target=election.run, name="leader", daemon=True).start()
    logger.info("Waiting for Lease %s/%s as %s", namespace, name, identity)
    with _answering(health_port):
        leading.wait()
    logger.info("Leading: this operator holds Lease %s/%s", namespace, name)


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """A probe every few seconds is nothing to tell."""


@contextlib.contextmanager
def _answering(port: int) -> Iterator[None]:
    if not port:
        yield
        return
    with http.server.ThreadingHTTPServer(("0.0.0.0", port), _Healthy) as server:
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        yield
        server.shutdown()


def _lost() -> None:
    logger.error("Lease is lost: ending, so that no two operators work at once")
    # Not sys.exit: this is a thread, and nothing more may be written.
    os._exit(EXIT_LOST)
