"""Talking to a driver through the API server, for an operator that runs outside of the cluster.

A port is forwarded for each request. The API server's HTTP proxy would be lighter, but takes the ``Authorization``
header for itself, and the driver's token is in there.
"""

import http.client

from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import portforward

from epochal.control.driver_client import DriverClient, DriverUnreachable, Trust
from epochal_operator.names import CONTROL_PORT


class ForwardedDriver(DriverClient):
    def __init__(
        self,
        configuration: Configuration,
        *,
        namespace: str,
        pod: str,
        token: str,
        timeout: float,
        trust: Trust | None = None,
    ) -> None:
        scheme = "https" if trust else "http"
        super().__init__(f"{scheme}://{pod}.{namespace}:{CONTROL_PORT}", token, timeout=timeout, trust=trust)
        self._configuration, self._namespace, self._pod = configuration, namespace, pod

    def _connect(self) -> http.client.HTTPConnection:
        # A client of its own: to forward, the library changes the one that it is given.
        pods = CoreV1Api(ApiClient(self._configuration))
        try:
            forwarded = portforward(
                pods.connect_get_namespaced_pod_portforward, self._pod, self._namespace, ports=str(CONTROL_PORT)
            )
        except ApiException as error:
            raise DriverUnreachable(f"no port of pod {self._pod} can be forwarded: {error.reason}") from error
        connection = super()._connect()
        connection.sock = forwarded.socket(CONTROL_PORT)
        connection.sock.settimeout(self._timeout)
        if self._trust is not None:
            # The handshake comes with the first byte, within the limit of time of the whole exchange.
            connection.sock = self._trust.context.wrap_socket(
                connection.sock, server_hostname=self._trust.name, do_handshake_on_connect=False
            )
        return connection
