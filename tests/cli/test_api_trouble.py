"""API servers that answer badly, and kubeconfigs that are no such thing: told in words, or waited for."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from epochal.cli import jobs
from epochal.cli.cluster import client
from epochal.cli.cluster import jobs as cluster_jobs
from epochal.cli.commands import commands
from tests.cli.cluster_world import conditions, job_manifest, running

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers each request by the next of ``answers``; by the last, again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Nothing of it."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.next()(self)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        says({})(self)


def says(value: object, code: int = 200, *, text: bytes | None = None, length: int | None = None) -> Answer:
    data = json.dumps(value).encode() if text is None else text

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(data) if length is None else length))
        handler.end_headers()
        handler.wfile.write(data)
        handler.wfile.flush()
        handler.close_connection = length is not None

    return answer


def stalls(handler: BaseHTTPRequestHandler) -> None:
    says({}, text=b'{"items": [', length=1000)(handler)
    time.sleep(3)


HALF = says({}, text=b'{"items": [', length=1000)


def job(**status: Any) -> dict[str, Any]:
    body = job_manifest()
    body["metadata"] |= {"uid": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**body, "status": {**running(), **status}}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    kubeconfig(tmp_path, monkeypatch, f"http://127.0.0.1:{server.server_port}")
    for module, name in ((cluster_jobs, "POLL"), (jobs, "WATCH_PAUSE")):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(client, "READ_TIMEOUT", 0.5)
    yield server
    server.shutdown()
    server.server_close()


def kubeconfig(directory: Path, monkeypatch: pytest.MonkeyPatch, address: str, current: str | None = "k") -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "k", "context": {"cluster": "c", "user": "u"}}],
        **({"current-context": current} if current else {}),
    }
    (directory / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(directory / "kubeconfig"))


def epochal(*arguments: str) -> Result:
    result = CliRunner().invoke(commands, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


COMMANDS = [
    ("get",),
    ("get", "clicks"),
    ("describe", "clicks"),
    ("status", "clicks"),
    ("logs", "clicks"),
    ("report", "clicks", "-o", "/nowhere/report.zip"),
    ("suspend", "clicks"),
    ("restart", "clicks", "--wait", "--timeout", "100ms"),
    ("scale", "clicks", "--replicas", "2"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "answer",
    [
        HALF,
        says({}, 500, text=b'{"mess', length=1000),
        says([1, 2]),
        says({}),
        says({"items": [1]}),
        says({}, text=b"<html>hi</html>"),
        says({"message": "no"}, 418),
    ],
    ids=["half", "half-of-an-error", "list", "empty", "item", "html", "teapot"],
)
def test_what_is_no_answer_is_told_in_words(server: Server, command: tuple[str, ...], answer: Answer) -> None:
    server.answers = [answer]
    result = epochal(*command)
    if command[0] != "suspend":  # which only tells what it wants
        assert result.exit_code == 2
        assert result.output.startswith("epochal: ")


def test_an_answer_that_stalls_has_an_end(server: Server) -> None:
    server.answers = [stalls]
    start = time.monotonic()
    assert "does not answer" in epochal("get").output
    assert time.monotonic() - start < 2.5


def test_waiting_goes_on_when_the_api_server_is_away(server: Server) -> None:
    away = says({"message": "apiserver is shutting down"}, 503)
    server.answers = [says(job()), away, HALF, stalls, away, says(job(generation=4))]
    result = epochal("restart", "clicks", "--wait", "--timeout", "30s")
    assert "clicks runs: generation 4" in result.output
    server.answers = [says(job()), away]
    result = epochal("restart", "clicks", "--wait", "--timeout", "200ms")
    assert result.exit_code == 2
    assert "is not running after 0 s, the API server answers 503: apiserver is shutting down" in result.output
    server.answers = [says(job()), says({"message": "no"}, 403)]
    assert "you may not do this" in epochal("restart", "clicks", "--wait", "--timeout", "30s").output


def test_a_job_that_had_failed_may_be_restarted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    down = conditions(Ready=("False", "Failed", ""))
    failed = says(job(phase="Failed", message="the old cause", conditions=down))
    server.answers = [failed, failed, failed, says(job(generation=4, conditions=down)), says(job(generation=4))]
    assert "clicks runs: generation 4" in epochal("restart", "clicks", "--wait", "--timeout", "30s").output
    again = says(job(phase="Failed", generation=4, message="the new cause", conditions=down))
    server.answers = [failed, failed, again]
    assert "has failed: the new cause" in epochal("restart", "clicks", "--wait", "--timeout", "30s").output
    monkeypatch.setattr(cluster_jobs, "SETTLE", 0.1)
    server.answers = [failed]
    assert "has failed: the old cause" in epochal("restart", "clicks", "--wait", "--timeout", "30s").output


def test_a_watch_that_breaks_is_begun_again(server: Server) -> None:
    def event(**status: Any) -> bytes:
        return json.dumps({"type": "MODIFIED", "object": job(**status)}).encode() + b"\n"

    cut = event(phase="Restarting") + b'{"type": "MODIF'
    gone = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n'
    server.answers = [
        says({"metadata": {}, "items": [job()]}),
        says({}, text=cut),
        says({}, text=gone),
        says({}, text=b"[1]\n", length=1000),
        says({}, 500),
        says({}, text=event(phase="Running", epoch=99)),
        says({"message": "no"}, 403),
    ]
    lines = epochal("get", "--watch").output.splitlines()
    assert [line.split()[2] for line in lines[1:4]] == ["Running", "Restarting", "Running"]
    assert lines[3].split()[3] == "99"
    assert lines[4] == "epochal: you may not do this: no"


def allows(**answers: Answer) -> Answer:
    """A server that answers paths that end so, and forbids all others."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        kind = handler.path.partition("?")[0].rsplit("/", 1)[-1]
        answers.get(kind, says({"message": "no"}, 403))(handler)

    return answer


def test_doctor_tells_what_it_could_not_look_at(server: Server) -> None:
    version = says({"major": "1", "minor": "30", "gitVersion": "v1.30"})
    server.answers = [allows(version=version)]
    for command in (("doctor",), ("doctor", "clicks")):
        result = epochal(*command)
        assert result.exit_code == 0
        assert "JobMissing" not in result.output
        assert "checks were not possible; the others found no problem" in result.output
        assert "No problem found" not in result.output
    server.answers = [allows(version=version, clicks=says(job()))]
    assert "job shop/clicks: Running" in epochal("doctor", "clicks").output, "one that may be seen, and not listed"
    server.answers = [allows(version=version, clicks=says({"message": 'streamingjobs "clicks" not found'}, 404))]
    result = epochal("doctor", "clicks")
    assert "JobMissing" in result.output
    assert "1 problem found; " in result.output


# --- kubeconfigs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [b", "there is no kubeconfig that can be used (while parsing a flow sequence"),
        ("just text", "is another kind of file"),
        ("- a", "is another kind of file"),
        ("contexts: [a]", "is another kind of file"),
        ("", "file is empty"),
        ("contexts: []", "names no current context: choose one with --context, it has no context"),
        ("current-context: k", "the current context k: the kubeconfig has no context"),
        ("{contexts: [{name: k}], current-context: k}", "context k of the kubeconfig cannot be used"),
    ],
)
def test_a_strange_kubeconfig_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    result = epochal("get")
    assert result.exit_code == 2
    assert says in result.output


def test_a_directory_and_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    assert f"({tmp_path}: Is a directory)" in epochal("get").output
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert f"(there is no file {tmp_path}/none)" in epochal("get", "--context", "k").output


def test_a_context_may_be_named_where_there_is_no_current_one(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(tmp_path, monkeypatch, f"http://127.0.0.1:{server.server_port}", current=None)
    server.answers = [says({"metadata": {}, "items": [job()]})]
    assert "clicks" in epochal("get", "--context", "k").output
    assert "choose one with --context, it has k" in epochal("get").output
    assert "--context z: the kubeconfig has k" in epochal("get", "--context", "z").output
    kubeconfig(tmp_path, monkeypatch, "nonsense")
    assert "its server nonsense must begin with https://" in epochal("get").output
