"""The node's namespaces: what is started in them is found again, and ends with them."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster import namespaces
from cluster.binaries import PAUSE
from cluster.daemons import Daemon, Daemons, started_at
from cluster.errors import ClusterError
from cluster.gobuild import ensure_built
from cluster.namespaces import Namespaces

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces, so needs root")


def test_no_node_is_found_where_none_runs(tmp_path: Path) -> None:
    assert namespaces.find(tmp_path) is None


def test_a_process_knows_when_it_was_started() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        age = datetime.now(UTC) - started_at(process.pid)
        process.kill()
    assert timedelta(seconds=-0.1) < age < timedelta(seconds=30)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Namespaces]:
    ensure_built(PAUSE)
    own = namespaces.create(tmp_path)
    yield own
    if namespaces.find(tmp_path):
        namespaces.destroy(own)


@pytest.mark.cluster
@needs_root
def test_a_daemon_is_started_once_found_again_and_stopped(own: Namespaces, tmp_path: Path) -> None:
    daemons = Daemons(own, tmp_path / "logs")
    daemon = Daemon("sleeper", ["sleep", "1000"])
    daemons.start(daemon)
    daemons.wait(lambda: daemons.pid(daemon) is not None, what="sleeper", needs=[], timeout=5)
    pid = daemons.pid(daemon)
    daemons.start(daemon)
    assert [found for found, command in own.processes() if command == ["sleep", "1000"]] == [pid]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    daemons.start(daemon)
    assert "State:\tT" not in Path(f"/proc/{pid}/status").read_text()
    daemons.stop(daemon, number=signal.SIGKILL)
    assert daemons.pid(daemon) is None
    # Whoever is its parent in there still has to take note of its end.
    daemons.wait(lambda: not Path(f"/proc/{pid}").exists(), what="its end", needs=[], timeout=5)


@pytest.mark.cluster
@needs_root
def test_waiting_for_a_daemon_that_ended_tells_what_it_said(own: Namespaces, tmp_path: Path) -> None:
    daemons = Daemons(own, tmp_path / "logs")
    # Not a shell: daemons are started by one, which would be taken for it.
    daemon = Daemon("broken", ["ls", "/nowhere"])
    daemons.start(daemon)
    with pytest.raises(ClusterError, match="broken ended, so the port will not be:\nls: cannot access '/nowhere'"):
        daemons.wait(lambda: False, what="the port", needs=[daemon], timeout=20)


@pytest.mark.cluster
@needs_root
def test_nothing_outlives_the_namespaces(own: Namespaces, tmp_path: Path) -> None:
    own.spawn(["sleep", "1001"], log=tmp_path / "log")
    (tmp_path / "mounted").mkdir()
    own.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "mounted")])
    own.run(["touch", str(tmp_path / "mounted" / "file"), "/run/file"])
    own.run(["ip", "link", "add", "bridge0", "type", "bridge"])
    assert not (tmp_path / "mounted" / "file").exists()
    assert not Path("/run/file").exists()
    started = [pid for pid, _ in own.processes()]
    assert len(started) >= 2
    namespaces.destroy(own)
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
