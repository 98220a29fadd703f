"""When a source counts as idle, so that it does not hold back the others."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from epochal.runtime.background import Background
from epochal.runtime.source import SourceSpec, SourceTask


@pytest.mark.parametrize("bounded", [False, True])
def test_a_bounded_source_is_never_idle(tmp_path: Path, bounded: bool) -> None:
    """However long Spark takes to come to its rows: they would all be late."""
    spec = SourceSpec(read=Mock(), event_time="at", idle_after=0, trigger={}, bounded=bounded)
    source = SourceTask("orders", spec, Mock(watermark=None), tmp_path, Background())
    source.check_idle()
    assert source.report().idle is not bounded
