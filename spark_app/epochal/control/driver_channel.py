"""Talking over TLS with drivers that can, and plainly with those of releases before it."""

from http import HTTPStatus

from epochal.control.driver_client import DriverClient, DriverError, DriverUnreachable, DriverWithoutTls

TOO_OLD = "its image is of a release before TLS: use a newer one, or set operator.requireDriverTls to false"


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


class SecuredDriver(DriverClient):
    """A driver that is talked with over TLS only. That its image is too old for it is found out without showing it
    anything."""

    def __init__(self, secured: DriverClient, plain: DriverClient) -> None:
        self.address = secured.address
        self._secured, self._plain = secured, plain

    @property
    def key(self) -> tuple[str, str]:
        return self._secured.key

    def request(self, method: str, path: str, body: bytes | None = None, *, token: bool = True) -> tuple[int, bytes]:
        try:
            return self._secured.request(method, path, body, token=token)
        except DriverUnreachable as error:
            if not error.hung and not error.why and self._is_too_old():
                raise DriverWithoutTls(f"the driver at {self.address} knows no TLS", why=TOO_OLD) from error
            raise

    def _is_too_old(self) -> bool:
        try:
            return not self._plain.offers_tls()
        except (DriverUnreachable, DriverError):
            return False
