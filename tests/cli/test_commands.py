"""Commands that look at a job: against a store that the fake driver filled, and against every mistake."""

import time
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from epochal.cli.commands import commands
from epochal.cli.epochs import rows
from epochal.cli.targets import Target
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverConfig,
    PipelineConfig,
    StorageConfig,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import open_store
from tests.cli.support import Job, output_of, refusal
from tests.support.fake_driver import FakeEngine, Script


def fill(uri: str, epochs: int = 3, job: str = "numbers") -> list[CheckpointReport]:
    """Publish some epochs as a driver does."""
    config = DriverConfig(
        namespace="default",
        job=job,
        generation=Generation(1),
        storage=StorageConfig(uri=uri),
        pipeline=PipelineConfig(module="none"),
    )
    engine = FakeEngine(config, open_store(uri), Script(rate=1000))
    engine.begin()
    reports = []
    for number in range(1, epochs + 1):
        barrier = CheckpointBarrier(
            epoch=Epoch(number), min_epoch=Epoch(1), timestamp=1_700_000_000_000_000 + number, then_stop=False
        )
        engine.start_checkpoint(CheckpointRequest(generation=Generation(1), barrier=barrier))
        while (report := engine.checkpoint(Epoch(number))) and report.state is not CheckpointState.READY:
            time.sleep(0.005)
        assert report is not None
        reports.append(report)
    return reports


@pytest.fixture
def store(tmp_path: Path) -> str:
    uri = (tmp_path / ".epochal" / "store").as_uri()
    fill(uri)
    return uri


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Job(tmp_path).manifest


def epochal(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


def ok(*arguments: str) -> str:
    return output_of(epochal(*arguments))


def refused(*arguments: str) -> str:
    """One line that says what to do, and no traceback."""
    return refusal(epochal(*arguments))


@pytest.mark.parametrize(
    "command", [[], *([name] for name in commands.commands), ["savepoint", "create"], ["savepoint", "list"]]
)
def test_everything_has_help(command: list[str]) -> None:
    assert "Usage:" in ok(*command, "--help")


def test_each_option_says_what_it_is_for() -> None:
    def check(command: click.Command) -> None:
        assert command.help, command.name
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name not in ("output", "how"):
                assert parameter.help, f"{command.name} {parameter.name}"
        if isinstance(command, click.Group):
            for below in command.commands.values():
                check(below)

    check(commands)


def test_checkpoints_are_listed_newest_first(store: str, manifest: Path) -> None:
    for target in (store, str(manifest)):
        lines = ok("checkpoints", target).splitlines()
        assert [line.split()[0] for line in lines] == ["epoch", "3", "2", "1"]
        assert "Ready" in lines[1]


def test_unreadable_epochs_are_shown_and_passed_over(store: str, tmp_path: Path) -> None:
    paths = JobPaths("default", "numbers")
    (tmp_path / ".epochal/store" / paths.manifest(Epoch(3))).write_text("{")
    assert "Unreadable" in ok("checkpoints", store)
    assert "Epoch 2 of default/numbers" in ok("inspect", store)
    target = Target(open_store=lambda: open_store(store), paths=paths)
    assert [row.manifest is None for row in rows(target)] == [True, False, False]


def test_inspect_shows_tables_rows_and_sql(store: str) -> None:
    overview = ok("inspect", store, "--epoch", "2")
    assert "Epoch 2 of default/numbers" in overview
    assert "sums" in overview
    assert "count" in ok("inspect", store, "--operator", "total")
    values = [
        int(
            ok(
                "inspect", store, "--epoch", str(epoch), "--sql", "SELECT value FROM total.sums", "--format", "csv"
            ).split()[1]
        )
        for epoch in (1, 2, 3)
    ]
    assert values == sorted(values)
    assert ok("inspect", store, "--sql", "SELECT key, 1 AS one FROM total.sums", "--format", "json").strip() == (
        '{"key": "count", "one": 1}'
    )


def test_a_value_that_looks_like_markup_is_shown_as_it_is(store: str) -> None:
    assert "[red]x[/nope]" in ok("inspect", store, "--sql", "SELECT '[red]x[/nope]' AS v")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epoch", "9"], "there is no epoch 9"),
        (["--savepoint", "none"], "there is no savepoint none"),
        (["--epoch", "1", "--savepoint", "x"], "not both"),
        (["--operator", "nobody"], "there is no operator nobody: epoch 3 has"),
        (["--operator", "total", "--table", "none"], "has the tables: sums"),
        (["--operator", "numbers"], "has the tables: none"),
        (["--sql", "SELECT * FROM nothing"], "tables of epoch 3: total.sums"),
        (["--sql", "SELEKT"], "Parser Error"),
        (["--job", "A_B"], "not allowed"),
        (["--job", "other"], "holds no epoch"),
    ],
)
def test_inspect_mistakes(store: str, arguments: list[str], said: str) -> None:
    assert said in refused("inspect", store, *arguments)


def test_several_jobs_in_a_store_must_be_told_apart(store: str) -> None:
    fill(store, 1, job="other")
    assert "--namespace default --job numbers" in refused("checkpoints", store)
    assert "3" in ok("checkpoints", store, "--job", "numbers")


def test_savepoints(store: str) -> None:
    assert "No savepoints" in ok("savepoint", "list", store)
    assert "keeps epoch 2" in ok("savepoint", "create", store, "before", "--epoch", "2")
    assert "keeps epoch 3" in ok("savepoint", "create", store, "newest")
    assert "another epoch" in refused("savepoint", "create", store, "before", "--epoch", "3")
    assert "not allowed" in refused("savepoint", "create", store, "Bad Name")
    assert len(ok("savepoint", "list", store).splitlines()) == 3
    assert "Deleted" in ok("cleanup", store, "--job", "numbers", "--min-epoch", "3")
    assert "count" in ok("inspect", store, "--savepoint", "before", "--operator", "total")
    assert "is deleted" in ok("savepoint", "delete", store, "before")
    assert "there is no savepoint" in refused("savepoint", "delete", store, "before")


def test_cleanup_deletes_and_refuses(store: str) -> None:
    assert "Deleted 2 epochs" in ok("cleanup", store, "--job", "numbers", "--min-epoch", "3")
    assert len(ok("checkpoints", store).splitlines()) == 2
    result = epochal("cleanup", store, "--job", "numbers", "--min-epoch", "9")
    assert result.exit_code == 1
    assert "nothing was deleted" in result.output


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("file:///no/such/directory", "no such directory"),
        ("ftp://x/y", "is not a supported store"),
        ("s3://user:pw@bucket/x", "password"),
    ],
)
def test_wrong_stores(uri: str, said: str) -> None:
    assert said in refused("checkpoints", uri, "--job", "x")


def test_validate(manifest: Path) -> None:
    (manifest.parent / "none.py").write_text("def build(p): ...")
    assert "default/numbers is valid" in ok("validate", str(manifest))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it holds nothing"),
        ("a: [", "is not valid YAML"),
        ("- 1", "must be a mapping"),
        ("kind: Pod", "it holds Pod"),
        ("\x00", "is not valid YAML"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    for command in ("validate", "run", "status"):
        assert said in refused(command, str(path))


def test_missing_files_and_mistaken_options(tmp_path: Path, manifest: Path) -> None:
    assert "No such file" in refused("run", str(tmp_path / "none.yaml"))
    assert "write --set KEY=VALUE" in refused("run", str(manifest), "--set", "novalue")
    document = yaml.safe_load(manifest.read_text())
    document["spec"]["pipeline"] = {"file": "none.py"}
    manifest.write_text(yaml.safe_dump(document))
    assert "there is no file" in refused("run", str(manifest))
    document["spec"]["pipeline"] = {"configMap": {"name": "program"}}
    manifest.write_text(yaml.safe_dump(document))
    for command in ("run", "explain"):
        assert "needs ConfigMap program in the same file" in refused(command, str(manifest))
    config_map = {"kind": "ConfigMap", "metadata": {"name": "program"}, "data": {"pipeline.py": "def build(p): ..."}}
    manifest.write_text(yaml.safe_dump_all([config_map, document]))
    assert "valid" in ok("validate", str(manifest))


def test_status_of_a_job_that_never_ran(store: str, manifest: Path) -> None:
    assert "has not been run here yet" in ok("status", str(manifest))
    assert "has ended here yet" in refused("timeline", str(manifest))
    assert "a store does not tell" in refused("status", store)


def test_logs_show_as_many_lines_as_are_wanted(manifest: Path) -> None:
    log = manifest.parent / ".epochal/default/numbers/drivers/000001/driver.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(1500)))
    assert ok("logs", str(manifest), "--tail", "0") == ""
    assert ok("logs", str(manifest), "--tail", "2") == "line 1498\nline 1499\n"
    assert len(ok("logs", str(manifest)).splitlines()) == 1000
    assert len(ok("logs", str(manifest), "--tail", "9999").splitlines()) == 1500
