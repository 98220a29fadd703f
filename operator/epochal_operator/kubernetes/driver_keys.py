"""What one generation's pods know in secret: made once, kept in a Secret, gone with the generation."""

import base64
import re
import secrets
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from epochal.control.driver_client import Trust
from epochal.protocol.control import CERTIFICATE_FILE, PRIVATE_KEY_FILE, SERVER_TOKEN_FILE
from epochal_operator.api import JsonObject
from epochal_operator.kubernetes.manifests.resources import AUTHORITY_KEY, SPARK_EXECUTOR_KEY, TOKEN_KEY
from epochal_operator.kubernetes.manifests.spark_conf import SPARK_SECRET_FILE

FROM, UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Of every certificate, whatever the time is. An authority is trusted for as long as its generation lives. Dates would
only let an operator or a node whose clock is wrong find fault with drivers that are well. The second is how a
certificate says that it does not expire (RFC 5280)."""


_TOKENS = re.compile(r"[!-~]+")


class BadKeysError(Exception):
    """With what the Secret holds, or without it, the driver cannot be asked."""


@dataclass(frozen=True, slots=True)
class DriverKeys:
    """What the operator needs of them. ``token`` and ``authority`` are empty for a driver that an operator of a release
    before TLS has started."""

    plain_token: str = field(repr=False)
    token: str = field(repr=False)
    authority: str = field(repr=False)

    @classmethod
    def of(cls, secret: JsonObject) -> "DriverKeys":
        data, name = secret.get("data") or {}, secret["metadata"]["name"]
        try:
            keys = cls(*(_text(data, key) for key in (TOKEN_KEY, SERVER_TOKEN_FILE, AUTHORITY_KEY)))
        except ValueError as error:
            raise BadKeysError(f"Secret {name} cannot be read: delete it") from error
        if not keys.plain_token or bool(keys.token) != bool(keys.authority):
            raise BadKeysError(f"Secret {name} holds no token: delete it")
        if not _TOKENS.fullmatch(keys.plain_token + keys.token):
            raise BadKeysError(f"Secret {name} holds a token with blanks or line breaks: delete it")
        if keys.authority:
            try:
                keys.trust("")
            except (ssl.SSLError, ValueError) as error:
                raise BadKeysError(f"Secret {name} holds no certificate: delete it") from error
        return keys

    def trust(self, host: str) -> Trust:
        return Trust.of(self.authority, host)


def _text(data: JsonObject, key: str) -> str:
    return base64.b64decode(data.get(key) or "", validate=True).decode("ascii")


def new_keys(host: str) -> dict[str, bytes]:
    """The content of a Secret. ``host``: the name that the driver's certificate is for.

    Its authority signs nothing else: the key is forgotten here."""
    certificate, key, authority = _certificate(host)
    spark = secrets.token_urlsafe(32).encode()
    return {
        TOKEN_KEY: secrets.token_urlsafe(32).encode(),
        SERVER_TOKEN_FILE: secrets.token_urlsafe(32).encode(),
        CERTIFICATE_FILE: certificate,
        PRIVATE_KEY_FILE: key,
        AUTHORITY_KEY: authority,
        SPARK_SECRET_FILE: spark,
        # What Spark makes of the file, for processes that are told by a variable.
        SPARK_EXECUTOR_KEY: base64.b64encode(spark),
    }


def _certificate(host: str) -> tuple[bytes, bytes, bytes]:
    """A driver's certificate, its key, and the authority's certificate, as PEM."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("Epochal generation")
    authority = (
        _builder(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name("Epochal driver"), issuer, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private, authority.public_bytes(pem)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(FROM)
        .not_valid_after(UNTIL)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
