"""What is left for the background: done in order, and never much of it at once."""

import threading
import time

from epochal.runtime.spark.background import MOST_WAITING, Background


def test_all_is_done_in_the_order_in_which_it_came() -> None:
    background, go = Background(), threading.Event()
    done: list[str] = []

    def first() -> None:
        go.wait(10)
        done.append("first")

    background.submit(first)
    background.after(lambda: done.append("released"))
    background.submit(lambda: done.append("second"))
    assert done == []
    go.set()
    finished = threading.Event()
    background.after(finished.set)
    assert finished.wait(10)
    assert done == ["first", "released", "second"]


def test_when_no_more_is_taken_it_is_done_at_once() -> None:
    background = Background()
    background.close()
    done: list[threading.Thread] = []
    background.after(lambda: done.append(threading.current_thread()))
    assert done == [threading.current_thread()]


def test_what_fails_holds_nothing_up() -> None:
    background, finished = Background(), threading.Event()
    background.after(lambda: print(1 / 0))
    background.after(finished.set)
    assert finished.wait(10)


def test_who_brings_too_much_waits() -> None:
    background, go = Background(), threading.Event()
    brought: list[int] = []

    def wait() -> None:
        go.wait(10)

    def bring() -> None:
        for number in range(MOST_WAITING + 2):
            background.submit(wait)
            brought.append(number)

    bringing = threading.Thread(target=bring)
    bringing.start()
    deadline = time.monotonic() + 5
    while len(brought) < MOST_WAITING and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(brought) == MOST_WAITING
    go.set()
    bringing.join(10)
    assert len(brought) == MOST_WAITING + 2
