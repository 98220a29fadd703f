"""Where a tenant's store is, and whether the operator may go there."""

import functools
import http.client
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import certifi

from epochal.control.exchange import BoundedConnection
from epochal.protocol.errors import StoreConfigError, StoreUnreachableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An HTTP server. ``address`` is what its name was resolved to, once for all requests of a look: what was checked
    is what is connected to. ``proxy``: the administrator's, if there is one; it resolves names by itself."""

    host: str
    port: int
    tls: bool
    path: str = ""
    address: str = ""
    proxy: tuple[str, int] | None = None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def target(self, resource: str) -> str:
        """What stands in the first line of a request."""
        return f"http://{self.authority}{resource}" if self.proxy and not self.tls else resource

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        context = _tls() if self.tls else None
        if self.proxy is None:
            return BoundedConnection(self.host, self.port, address=self.address, timeout=timeout, context=context)
        host, port = self.proxy
        connection = BoundedConnection(host, port, address=host, timeout=timeout, context=context)
        if self.tls:
            connection.set_tunnel(self.host, self.port)
        return connection


def find_endpoint(uri: str, url: str, *, local: bool) -> Endpoint:
    """The server at ``url``, its name resolved. ``local``: it may be this machine."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise StoreConfigError(uri, "its endpoint is not a URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise StoreConfigError(uri, "its endpoint must be http://HOST:PORT or https://HOST:PORT")
    host, tls, path = parts.hostname, parts.scheme == "https", parts.path.rstrip("/")
    proxies = getproxies_environment()
    proxy = urlsplit(proxies.get(parts.scheme, ""))
    if proxy.hostname and not proxy_bypass_environment(host, proxies):
        _check_literal(uri, host, local=local)
        where = (proxy.hostname, proxy.port or 3128)
        return Endpoint(host=host, port=port, tls=tls, path=path, proxy=where)
    return Endpoint(host=host, port=port, tls=tls, path=path, address=_resolved(uri, host, port, local=local))


def _resolved(uri: str, host: str, port: int, *, local: bool) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise StoreUnreachableError(uri, "the host of its endpoint has no address: check the endpoint") from error
    addresses = [str(address[0]) for *_, address in found]
    for address in addresses:
        _check(uri, address, local=local)
    return addresses[0]


def _check_literal(uri: str, host: str, *, local: bool) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    _check(uri, host, local=local)


def _check(uri: str, text: str, *, local: bool) -> None:
    """Private addresses are where stores of a cluster are. The machine's own and the cloud's metadata service are no
    stores, and would answer the operator what they answer nobody else."""
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    forbidden = address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA
    if forbidden or (address.is_loopback and not local):
        raise StoreConfigError(
            uri, "its endpoint is an address of the operator's own machine or of the cloud's metadata service"
        )


_METADATA = frozenset(ipaddress.ip_address(text) for text in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16"))


@functools.cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()  # SSL_CERT_FILE counts
    context.load_verify_locations(certifi.where())
    return context
