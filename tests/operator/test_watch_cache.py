"""What the operator remembers of its objects: never older than its own writes."""

import threading
from collections.abc import Iterator
from typing import Any

from epochal_operator.api import Api, GoneError, JsonObject
from epochal_operator.kubernetes.watch_cache import WatchedKind
from epochal_operator.names import JOB_LABEL
from tests.operator.fake_kubelet import wait_until


def pod(name: str, version: int, *, job: str = "job", uid: str = "") -> JsonObject:
    metadata = {"namespace": "ns", "name": name, "resourceVersion": str(version), "uid": uid or name}
    return {"metadata": metadata | {"labels": {JOB_LABEL: job}}}


class ScriptedApi(Api):
    """Answers lists and watches from a script; the last watch stays open."""

    def __init__(self, lists: list[tuple[int, list[JsonObject]]], watches: list[list[Any]]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[str] = []
        self.open = threading.Event()

    def list(self, kind: str, namespace: str | None, *, selector: str = "", name: str = "") -> JsonObject:
        self.asked.append("list")
        version, items = self.lists.pop(0)
        return {"metadata": {"resourceVersion": str(version)}, "items": items}

    def watch(
        self, kind: str, namespace: str | None, *, selector: str, version: str, seconds: int
    ) -> Iterator[JsonObject]:
        self.asked.append(f"watch {version}")
        if not self.watches:
            self.open.wait()
            return
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event


def names(watched: WatchedKind, job: str = "job") -> list[str]:
    return [item["metadata"]["name"] for item in watched.of_job("ns", job)]


def test_lists_then_watches_and_goes_on_from_where_it_was() -> None:
    api = ScriptedApi(
        [(10, [pod("a", 5)])],
        [
            [{"type": "ADDED", "object": pod("b", 11)}, {"type": "DELETED", "object": pod("a", 12)}],
            [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}}],
        ],
    )
    watched = WatchedKind(api, "pods", None)
    watched.start()
    wait_until(lambda: len(api.asked) == 4)
    assert api.asked == ["list", "watch 10", "watch 12", "watch 20"]
    assert names(watched) == ["b"]
    watched.stop()
    api.open.set()


def test_a_version_that_is_too_old_means_a_new_list() -> None:
    api = ScriptedApi([(10, [pod("a", 5)]), (30, [pod("b", 25)])], [[GoneError("too old", 410)]])
    watched = WatchedKind(api, "pods", None)
    watched.start()
    wait_until(lambda: len(api.asked) == 4)
    assert names(watched) == ["b"]
    watched.stop()
    api.open.set()


def test_what_we_made_is_known_at_once_and_an_older_state_does_not_replace_it() -> None:
    watched = WatchedKind(ScriptedApi([], []), "pods", None)
    watched.note(pod("a", 7))
    watched.note(pod("a", 5))
    found = watched.get("ns", "a")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "7"


def test_what_is_gone_does_not_come_back_by_an_answer_that_was_late() -> None:
    watched = WatchedKind(ScriptedApi([], []), "pods", None)
    watched.note(pod("a", 5, uid="first"))
    watched.note_gone(pod("a", 6, uid="first"))
    watched.note(pod("a", 5, uid="first"))
    assert names(watched) == []
    watched.note(pod("a", 8, uid="second"))
    assert names(watched) == ["a"]


def test_an_object_that_changes_its_job_leaves_the_old_one() -> None:
    watched = WatchedKind(ScriptedApi([], []), "pods", None)
    watched.note(pod("a", 5))
    watched.note(pod("a", 6, job="other"))
    assert (names(watched), names(watched, "other")) == ([], ["a"])
