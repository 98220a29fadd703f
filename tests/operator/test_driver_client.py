"""Asking a driver: as rarely as is enough, and never for longer than allowed."""

import socket
import threading
import time
from contextlib import suppress

import pytest

from epochal.control.deadlines import Deadlines
from epochal.control.driver_client import DriverClient, DriverUnreachable, RememberingDriver
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import CheckpointReport, DriverPhase, DriverStatus
from epochal.protocol.epochs import Epoch, Generation


class CountingDriver(DriverClient):
    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.asked = 0
        self.phase = DriverPhase.RUNNING
        self.silent = False

    def status(self) -> DriverStatus:
        self.asked += 1
        if self.silent:
            raise DriverUnreachable("nothing answers")
        return DriverStatus(namespace="n", job="j", generation=Generation(1), phase=self.phase, started=1)

    def post_barrier(self, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        raise DriverUnreachable("nothing answers")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_driver_that_runs_well_is_asked_once_a_heartbeat() -> None:
    driver, clock = CountingDriver(), Clock()
    remembering = RememberingDriver(driver, clock, 10.0)
    for second in range(20):
        clock.now = 100.0 + second
        assert remembering.status().phase is DriverPhase.RUNNING
    assert driver.asked == 2


def test_a_driver_that_does_not_run_yet_is_asked_each_time() -> None:
    driver = CountingDriver()
    driver.phase = DriverPhase.STARTING
    remembering = RememberingDriver(driver, Clock(), 10.0)
    remembering.status()
    remembering.status()
    assert driver.asked == 2


def test_silence_is_not_remembered_nor_covered_up() -> None:
    driver, clock = CountingDriver(), Clock()
    remembering = RememberingDriver(driver, clock, 10.0)
    remembering.status()
    driver.silent = True
    clock.now += 11
    for _ in range(2):
        with pytest.raises(DriverUnreachable):
            remembering.status()
    assert driver.asked == 3


def test_a_barrier_that_was_not_taken_means_to_look_again() -> None:
    driver = CountingDriver()
    remembering = RememberingDriver(driver, Clock(), 10.0)
    remembering.status()
    barrier = CheckpointBarrier(epoch=Epoch(1), min_epoch=Epoch(1), timestamp=1, then_stop=False)
    with pytest.raises(DriverUnreachable):
        remembering.post_barrier(Generation(1), barrier)
    remembering.status()
    assert driver.asked == 2


def test_a_clock_that_was_set_back_does_not_make_an_old_answer_new() -> None:
    driver, clock = CountingDriver(), Clock()
    remembering = RememberingDriver(driver, clock, 10.0)
    remembering.status()
    clock.now -= 50
    remembering.status()
    assert driver.asked == 2


def test_a_driver_that_answers_byte_by_byte_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        client = DriverClient(f"http://127.0.0.1:{server.getsockname()[1]}", "token", timeout=0.3)
        begun = time.monotonic()
        with pytest.raises(DriverUnreachable):
            client.status()
        assert time.monotonic() - begun < 2


def test_only_what_is_not_over_in_time_is_ended() -> None:
    deadlines = Deadlines()
    ended: list[str] = []
    with deadlines.limit(0.05, lambda: ended.append("quick")):
        pass
    with deadlines.limit(5, lambda: ended.append("patient")), deadlines.limit(0.05, lambda: ended.append("slow")):
        time.sleep(0.2)
    assert ended == ["slow"]
