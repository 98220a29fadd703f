"""What a driver is told in its file and by variables."""

from pathlib import Path

import msgspec
import pytest

from epochal.driver import read_config
from epochal.protocol.control import IN_PLACE_VARIABLE, DriverConfig, PipelineConfig, StorageConfig
from epochal.protocol.epochs import Generation

CONFIG = DriverConfig(
    namespace="n",
    job="j",
    generation=Generation(1),
    storage=StorageConfig(uri="memory:///"),
    pipeline=PipelineConfig(module="m"),
)


@pytest.mark.parametrize("told", [False, True])
def test_a_variable_says_that_the_controller_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """A field would be refused by drivers of release 0.1.0."""
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(CONFIG))
    assert b"in_place" not in path.read_bytes()
    if told:
        monkeypatch.setenv(IN_PLACE_VARIABLE, "true")
    else:
        monkeypatch.delenv(IN_PLACE_VARIABLE, raising=False)
    assert read_config(path).in_place is told
