"""The certificates and keys of a cluster: one authority, and what it signs.

Made once for a directory and kept: kubeconfigs that people have copied stay good over restarts.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "ca"
SERVICE_ACCOUNT = "service-account"
LIFETIME = timedelta(days=3650)
# The clocks of a machine and of what it talks to may differ a little.
BACKDATED = timedelta(hours=1)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Identity:
    """Who a certificate is for. Kubernetes takes the organisation for the group."""

    name: str
    common_name: str
    organisation: str | None = None
    # Names and addresses under which a server is reached; none for a client.
    hosts: Sequence[str] = ()


@dataclass(frozen=True)
class KeyPair:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Pki:
    """A directory of certificates."""

    directory: Path

    @property
    def authority(self) -> KeyPair:
        return self.pair(AUTHORITY)

    @property
    def service_account_key(self) -> Path:
        return self.directory / f"{SERVICE_ACCOUNT}.key"

    def pair(self, name: str) -> KeyPair:
        return KeyPair(self.directory / f"{name}.crt", self.directory / f"{name}.key")

    def ensure(self, identities: Sequence[Identity]) -> None:
        """Make what is missing, and anew what was made for other names or by another authority."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._complete(AUTHORITY):
            self._make_authority()
        if not self.service_account_key.exists():
            # Tokens are signed with RS256, which every client library knows.
            _write_key(self.service_account_key, rsa.generate_private_key(public_exponent=65537, key_size=2048))
        for identity in identities:
            if not self._fits(identity):
                self._sign(identity)

    def _complete(self, name: str) -> bool:
        pair = self.pair(name)
        return pair.certificate.exists() and pair.key.exists()

    def _fits(self, identity: Identity) -> bool:
        """Whether its certificate is there, of this authority, and for the same hosts."""
        if not self._complete(identity.name):
            return False
        certificate = x509.load_pem_x509_certificate(self.pair(identity.name).certificate.read_bytes())
        authority = x509.load_pem_x509_certificate(self.authority.certificate.read_bytes())
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:
            return False
        return certificate.subject == _subject(identity) and _hosts_of(certificate) == set(identity.hosts)

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "epochal-cluster")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(subject=subject, issuer=subject, public_key=key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self._write(AUTHORITY, certificate, key)

    def _sign(self, identity: Identity) -> None:
        authority = x509.load_pem_x509_certificate(self.authority.certificate.read_bytes())
        authority_key = serialization.load_pem_private_key(self.authority.key.read_bytes(), password=None)
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(subject=_subject(identity), issuer=authority.subject, public_key=key.public_key())
        if identity.hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = [_general_name(host) for host in identity.hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            # Python 3.13 and newer refuse a certificate without it.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA256())
        )
        self._write(identity.name, certificate, key)

    def _write(self, name: str, certificate: x509.Certificate, key: PrivateKey) -> None:
        pair = self.pair(name)
        _write_key(pair.key, key)
        _write_whole(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _builder(
    *, subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def _subject(identity: Identity) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)]
    if identity.organisation:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organisation))
    return x509.Name(attributes)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def _write_key(path: Path, key: PrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_whole(path, pem, mode=0o600)


def _write_whole(path: Path, content: bytes, *, mode: int) -> None:
    """Write under another name first: a file cut short by a crash must not be taken for a good one."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.rename(path)
