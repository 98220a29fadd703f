"""Images: what they are made of, and how they come into the node."""

import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cluster.containerd import CONTAINERD_NAME, REFERENCE, OciLayout, write_archive
from cluster.errors import ClusterError
from cluster.images import REPOSITORY, context_names, stage_context
from cluster.reload import deployments_of

IMAGE = "localhost/epochal-spark:dev"


def put(directory: Path, content: bytes) -> str:
    digest = sha256(content).hexdigest()
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    (blobs / digest).write_bytes(content)
    return f"sha256:{digest}"


@pytest.fixture
def oci(tmp_path: Path) -> OciLayout:
    layers = [{"digest": put(tmp_path, content)} for content in (b"first layer", b"second layer")]
    manifest = {"config": {"digest": put(tmp_path, b"config")}, "layers": layers}
    digest = put(tmp_path, json.dumps(manifest).encode())
    entry = {"digest": digest, "annotations": {REFERENCE: IMAGE}}
    (tmp_path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return OciLayout(tmp_path)


def test_an_image_consists_of_manifest_config_and_layers(oci: OciLayout) -> None:
    blobs = oci.blobs(IMAGE)
    assert len(blobs) == 4
    assert [oci.blob(digest).read_bytes() for digest in blobs[1:]] == [b"config", b"first layer", b"second layer"]


def test_an_unknown_image_is_named(oci: OciLayout) -> None:
    with pytest.raises(ClusterError, match="holds no image localhost/other"):
        oci.manifest("localhost/other")


def test_an_archive_holds_only_the_blobs_asked_for_and_names_the_image(oci: OciLayout) -> None:
    file = io.BytesIO()
    wanted = oci.blobs(IMAGE)[-1]
    write_archive(file, oci, IMAGE, [wanted])
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as archive:
        assert archive.getnames() == ["oci-layout", "index.json", f"blobs/{wanted.replace(':', '/')}"]
        member = archive.extractfile("index.json")
        assert member is not None
        index = json.loads(member.read())
    assert index["manifests"][0]["annotations"] == {CONTAINERD_NAME: IMAGE}
    assert index["manifests"][0]["digest"] == oci.manifest(IMAGE)["digest"]


def test_blobs_of_former_images_are_removed(oci: OciLayout) -> None:
    old = put(oci.directory, b"layer of a former image")
    oci.prune()
    assert not oci.blob(old).exists()
    assert all(oci.blob(digest).exists() for digest in oci.blobs(IMAGE))


def test_all_that_the_dockerfile_copies_is_in_the_context(tmp_path: Path) -> None:
    context = stage_context(tmp_path / "context")
    dockerfile = (context / "Dockerfile").read_text()
    copied = [
        name for line in re.findall(r"^COPY ((?!--from).*)", dockerfile, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert "spark_app" in copied
    for name in copied:
        assert (context / name).exists(), name
        assert name.split("/")[0] in context_names((REPOSITORY / ".dockerignore").read_text())
    assert not list(context.rglob("__pycache__"))


def test_deployments_of_a_changed_image_are_found() -> None:
    def deployment(name: str, image: str) -> dict[str, Any]:
        template = {"spec": {"containers": [{"image": image}]}}
        return {"metadata": {"namespace": "epochal", "name": name}, "spec": {"template": template}}

    deployments = [deployment("operator", "localhost/epochal-operator:dev"), deployment("other", "localhost/other:1")]
    assert deployments_of(["localhost/epochal-operator:dev"], deployments) == [("epochal", "operator")]
    assert deployments_of([IMAGE], deployments) == []


def test_images_do_not_depend_on_settings_of_tools(tmp_path: Path) -> None:
    source, changed = (REPOSITORY / "pyproject.toml").read_text(), tmp_path / "changed.toml"
    changed.write_text(source.replace("line-length = 120", "line-length = 100"))
    assert changed.read_text() != source
    reduced = [tmp_path / "one.toml", tmp_path / "other.toml"]
    for project, target in zip((REPOSITORY / "pyproject.toml", changed), reduced, strict=True):
        command = [sys.executable, *map(str, (REPOSITORY / "docker" / "reduce_project.py", project, target))]
        subprocess.run(command, check=True)
    assert reduced[0].read_text() == reduced[1].read_text()
    assert reduced[0].stat().st_mtime == reduced[1].stat().st_mtime
    kept, whole = tomllib.loads(reduced[0].read_text()), tomllib.loads(source)
    assert (kept["project"], kept["build-system"]) == (whole["project"], whole["build-system"])
    assert kept["tool"] == {"hatch": whole["tool"]["hatch"]}
