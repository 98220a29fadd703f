"""Workflows, templates and the release's script: what can be known of them without the service that runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.github-issue-forms": sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[bf]*.yml")),
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schema(schema: str) -> None:
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema]
    done = subprocess.run([*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_uses_what_is_there_and_ends(workflow: Path) -> None:
    described = yaml.safe_load(workflow.read_text())
    assert described["permissions"] == {"contents": "read"}, "more rights are given to the job that needs them"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, job in described["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
        for run in (step["run"] for step in job["steps"] if "run" in step):
            assert set(re.findall(r"^make ([a-z-]+)", run)) <= targets
            for path in re.findall(r"(?:^| )((?:scripts|\.ci|charts)/[\w./-]+)", run):
                assert (ROOT / path).exists(), path
    images = [job["strategy"]["matrix"]["target"] for job in described["jobs"].values() if "strategy" in job]
    for target in (one for targets in images for one in targets):
        assert re.search(rf"^FROM \S+ AS {target}$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_what_the_tests_build_is_kept_where_the_cache_looks() -> None:
    """In a container, `github.workspace` is a path of the host: only the variable is right."""
    text = (ROOT / ".github/workflows/test.yml").read_text()
    job = yaml.safe_load(text)["jobs"]["test"]
    (cached,) = (step["with"]["path"] for step in job["steps"] if step.get("uses", "").startswith("actions/cache"))
    assert any(f'EPOCHAL_CACHE="$GITHUB_WORKSPACE/{cached}"' in step.get("run", "") for step in job["steps"])
    assert f"{cached}/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "github.workspace }}" not in text


def test_the_site_that_is_uploaded_is_published() -> None:
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    uses = [step["uses"].split("@")[0] for job in jobs for step in job["steps"] if "uses" in step]
    assert uses.count("actions/upload-pages-artifact") == uses.count("actions/deploy-pages") == 1


def test_owners_are_named_for_folders_that_are_there() -> None:
    for line in (ROOT / ".github" / "CODEOWNERS").read_text().splitlines():
        if line.startswith("/"):
            assert (ROOT / line.split()[0].strip("/")).exists(), line


def test_a_tag_that_a_file_does_not_agree_with_is_refused() -> None:
    done = subprocess.run(
        [str(ROOT / "scripts/release-version.sh"), "v99.0.0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    for file in ("pyproject.toml", "charts/epochal/Chart.yaml", "CHANGELOG.md"):
        assert f"{file} says" in done.stderr
