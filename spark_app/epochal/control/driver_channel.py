"""Talking over TLS with drivers that can, and plainly with those of releases before it."""

from http import HTTPStatus

from epochal.control.driver_client import DriverClient


class NegotiatedDriver(DriverClient):
    """A driver that was given a certificate, in an image that may be too old to use it. It says so itself, before it is
    shown anything.

    The two have tokens of their own. Whoever pretends on the way that a driver cannot do TLS gets the token that this
    driver does not take. And one that was once asked over TLS is never asked otherwise again."""

    def __init__(self, secured: DriverClient, plain: DriverClient) -> None:
        self.address = secured.address
        self._secured, self._plain = secured, plain
        self._chosen: DriverClient | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self._secured.key

    def request(self, method: str, path: str, body: bytes | None = None, *, token: bool = True) -> tuple[int, bytes]:
        if self._chosen is None:
            self._chosen = self._secured if self._plain.offers_tls() else self._plain
        status, data = self._chosen.request(method, path, body, token=token)
        if status == HTTPStatus.UPGRADE_REQUIRED:
            self._chosen = None
        return status, data
