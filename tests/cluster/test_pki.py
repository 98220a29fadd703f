"""Certificates: made once, kept, and made anew where they would not do."""

import ipaddress
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cluster.kubeconfig import write_kubeconfig
from cluster.pki import Identity, Pki

SERVER = Identity("server", "kube-apiserver", "system:masters", hosts=("localhost", "127.0.0.1"))
CLIENT = Identity("client", "system:kube-scheduler")


def certificate(pki: Pki, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pki.pair(name).certificate.read_bytes())


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    pki = Pki(tmp_path / "pki")
    pki.ensure([SERVER, CLIENT])
    return pki


def test_certificates_are_signed_by_the_authority_and_fit_their_keys(pki: Pki) -> None:
    authority = certificate(pki, "ca")
    for name in ("server", "client"):
        signed = certificate(pki, name)
        signed.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(pki.pair(name).key.read_bytes(), password=None)
        assert signed.public_key() == key.public_key()


def test_kubernetes_finds_user_and_group_in_the_subject(pki: Pki) -> None:
    assert certificate(pki, "server").subject.rfc4514_string() == "O=system:masters,CN=kube-apiserver"
    assert certificate(pki, "client").subject.rfc4514_string() == "CN=system:kube-scheduler"


def test_a_server_is_known_by_names_and_addresses_and_a_client_by_none(pki: Pki) -> None:
    names = certificate(pki, "server").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    with pytest.raises(x509.ExtensionNotFound):
        certificate(pki, "client").extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_a_second_time_changes_nothing(pki: Pki) -> None:
    before = {path.name: path.read_bytes() for path in pki.directory.iterdir()}
    pki.ensure([SERVER, CLIENT])
    assert {path.name: path.read_bytes() for path in pki.directory.iterdir()} == before


def test_another_host_makes_only_that_certificate_anew(pki: Pki) -> None:
    authority, client = certificate(pki, "ca"), certificate(pki, "client")
    pki.ensure([Identity("server", "kube-apiserver", "system:masters", hosts=("localhost", "172.30.0.2")), CLIENT])
    names = certificate(pki, "server").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("172.30.0.2")]
    assert (certificate(pki, "ca"), certificate(pki, "client")) == (authority, client)


def test_a_lost_authority_makes_all_anew(pki: Pki) -> None:
    pki.authority.key.unlink()
    pki.ensure([SERVER, CLIENT])
    for name in ("server", "client"):
        certificate(pki, name).verify_directly_issued_by(certificate(pki, "ca"))


def test_a_certificate_without_its_key_is_made_anew(pki: Pki) -> None:
    pki.pair("client").key.unlink()
    pki.ensure([CLIENT])
    key = serialization.load_pem_private_key(pki.pair("client").key.read_bytes(), password=None)
    assert certificate(pki, "client").public_key() == key.public_key()


def test_keys_are_for_the_owner_only(pki: Pki) -> None:
    for key in (pki.authority.key, pki.pair("server").key, pki.service_account_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_kubeconfig_holds_all_it_needs(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "admin.kubeconfig"
    write_kubeconfig(path, pki=pki, identity="client", server="https://127.0.0.1:6443")
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == "epochal"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
