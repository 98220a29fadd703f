"""`epochal validate` refuses nothing that a driver would run: what is not certain is a warning, or nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from epochal.cli.commands import commands
from tests.cli.wrong_cases import BOMB
from tests.docs.pages import ROOT

IMAGE = "registry.example/team/spark:1"
BUILD = "def build(p): ...\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str | bytes) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def manifest(pipeline: Any = None, name: str = "job.yaml", **spec: Any) -> str:
    body = {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob", "metadata": {"name": "words"}}
    write(name, yaml.safe_dump({**body, "spec": {"pipeline": pipeline or {"file": "words.py"}, **spec}}))
    return name


def validate(*arguments: str) -> tuple[int, str, str]:
    """Exit code, and what it says beside that the manifest is valid; here, and what an error would be."""
    result = CliRunner().invoke(commands, ["validate", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr, result.stdout


def assert_clean(*arguments: str) -> None:
    code, said, _ = validate(*arguments)
    assert (code, said) == (0, "")


@pytest.mark.parametrize(
    "program",
    [
        'def build(p):\n    x = p.parameters["x"] if "x" in p.parameters else "5"\n',
        'def build(p):\n    if "x" in p.parameters:\n        p.parameters["x"]\n',
        'def build(p):\n    if not p.spark:\n        return\n    p.parameters["x"]\n',
        'def build(p):\n    try:\n        p.parameters["x"]\n    except KeyError:\n        pass\n',
        'def build(p):\n    p.parameters["x"] = "1"\n    p.parameters["x"]\n',
        'def build(p): ...\n\ndef hourly(p):\n    p.parameters["x"]\n',
        'import inspect\n\ndef build(p):\n    inspect.signature(build).parameters["p"]\n',
        "from collections.abc import Callable\nbuild: Callable = lambda p: None\n",
        "build, other = (lambda p: None), 1\n",
        "if True:\n    from helper import build\n",
        "def set():\n    global build\n    build = print\n\nset()\n",
        "globals()['build'] = print\n",
        "from helper import *\n",
        "\ufeffdef build(p): ...\n",
        'NAME = "topic-{}"\n\ndef build(p):\n    NAME.format("kafka")\n',
        "from contextlib import suppress\nwith suppress(ImportError):\n    import no_such\n\ndef build(p): ...\n",
        "def build(p): ...\n\ndef never():\n    import no_such\n",
        "import sys\nsys.path.append('/opt/lib')\nimport no_such\n\ndef build(p): ...\n",
        'def build(p):\n    "\\d"\n',
        b"# -*- coding: latin-1 -*-\n# \xe9\ndef build(p): ...\n",
    ],
    ids=ascii,
)
def test_a_correct_program_is_not_talked_about(program: str | bytes) -> None:
    write("helper.py", BUILD)
    write("words.py", program)
    assert_clean(manifest())


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.driver.extraClassPath": "/opt/jars/*"},
        {"spark.jars": "/opt/jars/kafka.jar", "image": IMAGE},
        {"spark.jars": "local:/opt/jars/kafka.jar"},
        {"spark.jars": "jars/*.jar"},
        {"spark.jars": "https://repository.example/kafka.jar"},
        {"spark.jars": "file:/dev/null"},
        {"spark.jars.packages": "org.apache.spark/spark-sql-kafka-0-10_2.13:4.2.0"},
    ],
    ids=str,
)
def test_jars_may_come_by_many_ways(conf: dict[str, str]) -> None:
    write("words.py", 'def build(p):\n    p.spark.readStream.format("kafka").load()\n')
    image = {"image": conf.pop("image")} if "image" in conf else {}
    assert_clean(manifest(sparkConf=conf, **image))


def test_modules_are_looked_for_where_the_driver_finds_them() -> None:
    write("jobs/beside.py", "")
    write("common.py", "")
    write("lib/elsewhere.py", "")
    write("jobs/words.py", "import beside, common, elsewhere\nimport xml.dom\n" + BUILD)
    path = [{"name": "PYTHONPATH", "value": str(Path("lib").resolve())}]
    assert_clean(manifest(name="jobs/job.yaml", env=path))
    write("jobs/words.py", "import no_such\n" + BUILD)
    code, said, _ = validate("jobs/job.yaml")
    assert code == 0
    assert said.startswith("epochal: warning: words.py, line 1: there is no module 'no_such' here")


def test_finders_of_editable_installs_are_asked(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    from importlib.machinery import ModuleSpec

    class Finder:
        def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
            return ModuleSpec(name, None, origin=str(here / "src.py")) if name in ("ourlib", "ourjob") else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    write("words.py", "import ourlib\n" + BUILD)
    assert_clean(manifest())
    write("src.py", "x = 1\n")
    code, said, _ = validate(manifest({"module": "ourjob"}))
    assert code == 2
    assert "there is no function 'build' in it, only x" in said


@pytest.mark.parametrize(
    ("pipeline", "spec"),
    [
        ({"file": "/opt/app/words.py"}, {"image": IMAGE}),
        ({"file": "/opt/app/words.sql"}, {"image": IMAGE}),
        ({"file": "/opt/app/words.py"}, {}),
        ({"file": "jobs/words.py"}, {"image": IMAGE}),
        ({"module": "jobs.words"}, {}),
        ({"module": "jobs.words"}, {"image": IMAGE}),
        ({"configMap": {"name": "program"}}, {}),
        ({"configMap": {"name": "program", "key": "words.sql"}}, {}),
    ],
    ids=str,
)
def test_a_program_may_be_in_the_image_or_on_the_cluster(pipeline: Any, spec: Any) -> None:
    store = {"uri": "s3://bucket/checkpoints", "credentialsSecret": {"name": "store"}}
    secret = [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    assert validate(manifest(pipeline, checkpoint={"storage": store}, env=secret, **spec))[0] == 0


def test_what_only_a_cluster_looks_up_keeps_a_job_from_running_here() -> None:
    write("words.py", BUILD)
    manifest(env=[{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])
    assert "note: line 7: spec.env[0]: only a cluster can look up P" in validate("job.yaml")[1]
    result = CliRunner().invoke(commands, ["run", "job.yaml"])
    assert result.exit_code == 2
    assert "spec.env[0]: a local run cannot look up valueFrom: give P a value" in result.output
    assert CliRunner().invoke(commands, ["status", "job.yaml"]).exit_code == 0


@pytest.mark.parametrize(
    ("config_map", "says"),
    [
        ("metadata:\ndata: {}", "note: "),
        ("metadata: hi\ndata: {}", "note: "),
        ("metadata: {name: program}\ndata: [pipeline.py]", "line 3: data of a ConfigMap must be a mapping"),
        ("metadata: {name: program}\ndata: pipeline.py", "line 3: data of a ConfigMap must be a mapping"),
        ("metadata: {name: program}\ndata: {5: a}", "has no key pipeline.py; it has 5"),
        ("metadata: {name: program}\ndata: {pipeline.py: 5}", "line 3: data.pipeline.py of a ConfigMap must be a text"),
        ("metadata: {name: program}\ndata: {../x: a}", "line 3: data.../x of a ConfigMap must be a text under a name"),
        ("metadata: {name: program}\nbinaryData: {pipeline.py: '%'}", "line 3: binaryData.pipeline.py of a ConfigMap"),
    ],
)
def test_a_malformed_config_map_is_told_in_words(config_map: str, says: str) -> None:
    manifest({"configMap": {"name": "program"}})
    write("job.yaml", f"kind: ConfigMap\n{config_map}\n---\n{Path('job.yaml').read_text()}")
    code, said, _ = validate("job.yaml")
    assert says in said
    assert code == (0 if says.startswith("note") else 2)


def test_a_config_map_may_have_helpers_and_binary_data() -> None:
    data = {"data": {"helper.py": "def build(p): ...\n"}, "binaryData": {"pipeline.py": "ZnJvbSBoZWxwZXIgaW1wb3J0ICo="}}
    manifest({"configMap": {"name": "program"}})
    config_map = yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "program"}, **data})
    write("job.yaml", f"{config_map}\n---\n{Path('job.yaml').read_text()}")
    assert_clean("job.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("spec: {pipeline: {file: words.py, parameters: {'a[x]:b': 5}}}", "a[x]:b: 5 is no string"),
        ("spec: {pipeline: {file: words.py}, 'x[a]:y': 1}", "unknown field"),
        ("a: &x [*x, *x]", "it contains itself"),
        (BOMB, "its aliases stand for too much"),
        ("a: &a {x: y}\n" + "".join(f"k{n}: &{b} {{<<: [*{a}, *{a}]}}\n" for n, (a, b) in enumerate(
            zip("abcdefghijklmnopqrstu", "bcdefghijklmnopqrstuv", strict=True))), "its aliases stand for too much"),
        ("metadata: {annotations: {a: &d {<<: {t: a}, t: c}}, labels: {<<: *d}}", "spec is missing"),
    ],
)  # fmt: skip
def test_strange_yaml_has_an_end(text: str, says: str) -> None:
    write("words.py", BUILD)
    write("job.yaml", f"apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\n{text}\n")
    command = [sys.executable, "-m", "epochal.cli", "validate", "job.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert done.returncode == 2
    assert says in done.stderr


# --- --set ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "given", "says"),
    [
        ('def build(p):\n    p.parameters["topic"]\n', "topic", ""),
        ('def build(p):\n    p.parameters["topic"]\n', "topics", "did you mean topic?"),
        ('def build(p):\n    p.parameters["topic"]\n', "limit", "warning"),
        ('from helper import add\n\ndef build(p):\n    add(p)\n    p.parameters["topic"]\n', "limit", ""),
        ('from helper import add\n\ndef build(p):\n    add(p)\n    p.parameters["topic"]\n', "topics", "warning"),
        ('def build(p):\n    x = [p]\n    p.parameters["topic"]\n', "topics", "warning"),
        ('@job\ndef build(p):\n    p.parameters["topic"]\n', "topics", "warning"),
        ("class build:\n    def __init__(self, p): ...\n", "topics", ""),
        ("from helper import build\n", "topics", ""),
        ("def build(p)\n", "topics", ""),
        (b"# -*- coding: latin-1 -*-\n# \xe9\ndef build(p): ...\n", "topics", "warning"),
    ],
)
def test_a_parameter_that_may_be_read_is_not_refused(program: str | bytes, given: str, says: str) -> None:
    from epochal.cli.manifests import check_given, load_job

    write("words.py", program)
    manifest()
    arguments = [f"{given}=1"]
    job = load_job(Path("job.yaml"), arguments)

    @commands.command("check", hidden=True)
    def check() -> None:
        check_given(job, arguments)

    try:
        result = CliRunner().invoke(commands, ["check"])
    finally:
        del commands.commands["check"]
    assert result.exit_code == (2 if says.startswith("did") else 0), result.output
    assert says in result.stderr
    assert bool(result.stderr) == bool(says)


def test_of_a_module_that_cannot_be_found_nothing_is_said() -> None:
    from epochal.cli.manifests import check_given, load_job

    manifest({"module": "jobs.words", "parameters": {"topic": "a"}})
    check_given(load_job(Path("job.yaml")), ["topics=a"])


# --- everything that the documents show -------------------------------------------------------------------------------

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [
    (page, text)
    for page in PAGES
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if re.search(r"^kind: StreamingJob", text, re.MULTILINE)
]


@pytest.mark.parametrize(("page", "text"), SHOWN, ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(SHOWN)])
def test_the_manifests_of_the_documents_are_valid(page: Path, text: str) -> None:
    write("job.yaml", text)
    for file in re.findall(r"file: ([\w./-]+\.(?:py|sql))", text):
        found = re.search(rf"```\w+\n(?:#|--) {re.escape(Path(file).name)}\n(.*?)```", page.read_text(), re.DOTALL)
        write(file, found[1] if found else BUILD)
    code, said, _ = validate("job.yaml")
    assert code == 0, said
    assert "warning" not in said or "there is no module 'jobs.words' here" in said
