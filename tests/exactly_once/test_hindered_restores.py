"""A full disk or a lost executor while a job restores says nothing about its state: the same epoch is tried again."""

import json
from pathlib import Path

import pytest

from epochal.protocol.control import EXIT_FAILED, EXIT_REFUSED
from tests.exactly_once.test_commits import KILLS, SEED
from tests.support.small_disk import run_with_small_disks

LONGEST = 400 + 60 * KILLS

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(LONGEST + 60)]


def test_the_same_epoch_is_restored_once_the_cause_is_gone(tmp_path: Path) -> None:
    state, local, elsewhere = (tmp_path / name for name in ("state", "local", "elsewhere"))
    elsewhere.mkdir()
    kills = max(1, KILLS // 3)  # of each three, this is one way
    done = run_with_small_disks(
        *("64m", [state, local], "tests.exactly_once.hindered"),
        *map(str, (state, local, elsewhere, kills, SEED)),
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    *starts, found = map(json.loads, done.stdout.splitlines())
    for start in starts:
        print(start["case"], "→", start["code"], start["message"][:150])
        assert start["damaged"] == [], start
        assert start["skipped"] == {}, start
    *lost, on_state, on_local, last = starts
    for start in (on_state, on_local):
        # Somebody has to make room; the driver is started again meanwhile.
        assert start["code"] == EXIT_REFUSED, start
        assert "No space left on device" in start["message"], start
    assert len(lost) == kills
    # An executor may be lost before it has anything that is needed: then the driver goes on, with the same epoch.
    assert {(start["code"], start["restored"]) for start in lost} <= {(EXIT_FAILED, None), (None, 2)}, lost
    assert (last["code"], last["restored"]) == (None, 2)
    assert found == [1, 2, 3]
