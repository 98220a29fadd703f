"""What can be known of the kind cluster without a Docker engine."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.kind import CONFIG, NAME, docker_answers, s3_manifest
from cluster.s3 import S3Access


def test_the_config_names_the_cluster_that_the_harness_looks_for() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    assert config["name"] == NAME
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker"]


def test_the_s3_server_gets_its_keys_and_a_pinned_image() -> None:
    objects = list(yaml.safe_load_all(s3_manifest(S3Access("http://node:30900", "epochal", "us-east-1", "id", "key"))))
    assert [item["kind"] for item in objects] == ["Namespace", "Deployment", "Service", "Secret"]
    assert objects[3]["stringData"] == {"ROOT_ACCESS_KEY": "id", "ROOT_SECRET_KEY": "key"}
    container = objects[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "localhost/epochal-versitygw:1.8.0"
    assert container["volumeMounts"][1]["mountPath"] == "/data/epochal"


def test_a_docker_command_without_an_engine_is_not_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    assert not docker_answers()
    docker.write_text("#!/bin/sh\necho 28.0\n")
    assert docker_answers()


def test_an_engine_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*arguments: Any, **options: Any) -> None:
        raise subprocess.TimeoutExpired("docker", 10)

    monkeypatch.setattr("cluster.kind.shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("cluster.kind.subprocess.run", hang)
    assert not docker_answers()
