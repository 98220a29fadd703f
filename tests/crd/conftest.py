"""One API server that knows the CRD, for all tests here."""

from collections.abc import Iterator

import pytest

from cluster.control_plane import ControlPlane
from tests.crd.server import Server


@pytest.fixture(scope="session")
def server(control_plane: ControlPlane) -> Iterator[Server]:
    with Server(control_plane) as server:
        server.install_crd()
        yield server
