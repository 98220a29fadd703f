"""Who may lead, by the Lease as one process saw it."""

import contextlib
from itertools import count

import pytest

from epochal.protocol.decision import Seconds
from epochal_operator.api import ApiError, ConflictError, JsonObject, NotFoundError
from epochal_operator.process.election import LONGEST_LEASE, LeaseRecord, LeaseView, Move, Timing, decide, look
from epochal_operator.process.leader import Leadership

TIMING = Timing(15.0)
OTHER = LeaseRecord(holder="other", renewed="1", duration=15)


def moves(*seen: tuple[Seconds, LeaseRecord | None], me: str = "me") -> list[Move]:
    view: LeaseView | None = None
    found = []
    for now, record in seen:
        view = look(view, record, TIMING, now)
        found.append(decide(view, me, now))
    return found


def test_a_lease_that_is_not_there_is_taken() -> None:
    assert moves((0, None)) == [Move.TAKE]


def test_one_that_was_given_back_is_taken_at_once() -> None:
    assert moves((0, OTHER), (1, LeaseRecord(holder=""))) == [Move.WAIT, Move.TAKE]


def test_one_that_is_held_is_taken_when_it_was_not_seen_to_change_for_its_duration() -> None:
    renewed = LeaseRecord(holder="other", renewed="2", duration=15)
    seen = moves((0, OTHER), (14.9, OTHER), (14.95, renewed), (29.9, renewed), (29.95, renewed))
    assert seen == [Move.WAIT, Move.WAIT, Move.WAIT, Move.WAIT, Move.TAKE]


def test_the_times_that_others_write_are_not_trusted() -> None:
    old = LeaseRecord(holder="other", renewed="1970-01-01T00:00:00Z", duration=15)
    assert moves((1e9, old), (1e9 + 14, old), (1e9 + 15, old)) == [Move.WAIT, Move.WAIT, Move.TAKE]


def test_the_holder_may_have_a_longer_duration_but_not_any() -> None:
    long = LeaseRecord(holder="other", duration=60)
    assert moves((0, long), (59, long), (60, long)) == [Move.WAIT, Move.WAIT, Move.TAKE]
    endless = LeaseRecord(holder="other", duration=1e9)
    assert moves((0, endless), (LONGEST_LEASE, endless)) == [Move.WAIT, Move.TAKE]
    none = LeaseRecord(holder="other", duration=0)
    assert moves((0, none), (14, none), (15, none)) == [Move.WAIT, Move.WAIT, Move.TAKE]


def test_one_that_somebody_deleted_is_left_to_its_holder() -> None:
    assert moves((0, OTHER), (1, None), (15.9, None), (16, None)) == [Move.WAIT, Move.WAIT, Move.WAIT, Move.TAKE]


def test_ones_own_is_renewed() -> None:
    assert moves((0, LeaseRecord(holder="me"))) == [Move.RENEW]


@pytest.mark.parametrize("lease", [1.0, 3.0, 15.0, 120.0])
def test_a_leader_ends_before_a_standby_can_lead(lease: Seconds) -> None:
    timing = Timing(lease)
    assert timing.renew_within < timing.lease
    # A request that hangs until its limits, a pause, and another request: within the time.
    assert 2 * timing.request + timing.retry + timing.request < timing.renew_within


# --- a whole process, but for its threads -----------------------------------------------------------------------------


class Server:
    """The one Lease, with versions, as the API server keeps it. ``away`` and ``answers_lost`` are its outages."""

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self.away = self.answers_lost = False
        self._versions = count(1)

    def get(self, *_: str) -> JsonObject:
        self._ask()
        if self.lease is None:
            raise NotFoundError("no Lease")
        return dict(self.lease)

    def create(self, _kind: str, _namespace: str, body: JsonObject) -> JsonObject:
        self._ask()
        if self.lease is not None:
            raise ConflictError("exists")
        return self._store(body)

    def replace(self, _kind: str, _namespace: str, _name: str, body: JsonObject) -> JsonObject:
        self._ask()
        if self.lease is None:
            raise NotFoundError("no Lease")
        if self.lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ConflictError("changed")
        return self._store(body)

    def _ask(self) -> None:
        if self.away:
            raise ApiError("connection refused")

    def _store(self, body: JsonObject) -> JsonObject:
        self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": str(next(self._versions))}}
        if self.answers_lost:
            raise ApiError("the answer is lost")
        return dict(self.lease)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


class Clock:
    now: Seconds = 1000.0

    def __call__(self) -> Seconds:
        return self.now


class Member(Leadership):
    """``ended`` says why its process would have ended."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self.ended: list[str] = []
        super().__init__(
            server,  # type: ignore[arg-type]
            namespace="n",
            name="epochal",
            timing=TIMING,
            clock=clock,
            lost=self.ended.append,
        )

    def tried(self) -> bool:
        """One try; says whether it may act after it."""
        with contextlib.suppress(ApiError):
            self.attempt()
        return self.acts()

    def acts(self) -> bool:
        if not self._leading.is_set():
            return False
        before = len(self.ended)
        self.check()
        return len(self.ended) == before


def test_a_leader_whose_server_is_away_ends_before_the_other_leads() -> None:
    server, clock = Server(), Clock()
    first, second = Member(server, clock), Member(server, clock)
    assert first.tried()
    assert not second.tried()
    server.away = True
    for clock.now in (1002, 1005, 1009.9):
        assert first.tried(), "outages shorter than that are nothing"
        assert not second.tried()
    clock.now = 1010
    assert not first.acts()
    assert "last renewed 10.0 s ago" in first.ended[0]
    server.away = False
    assert not second.tried(), "for all it knows the first could still act"
    clock.now = 1015
    assert second.tried()
    assert server.holder == second.identity
    assert not first.tried()
    assert any("holds it" in why for why in first.ended)


def test_answers_that_are_lost_lose_nothing() -> None:
    server, clock = Server(), Clock()
    leader = Member(server, clock)
    server.answers_lost = True
    assert not leader.tried(), "it holds the Lease and does not know"
    server.answers_lost = False
    assert leader.tried()
    server.answers_lost = True
    clock.now += 2
    assert leader.tried()
    server.answers_lost = False
    clock.now += 2
    assert leader.tried(), "renewed again, though the version was another"
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 0
    clock.now += 9.9
    assert leader.acts(), "counted from the renewal"


def test_a_leader_makes_a_lease_again_that_somebody_deleted() -> None:
    server, clock = Server(), Clock()
    first, second = Member(server, clock), Member(server, clock)
    assert first.tried()
    assert not second.tried()
    server.lease = None
    assert not second.tried()
    assert first.tried()
    assert server.holder == first.identity


def test_two_that_come_at_once_are_told_apart_by_the_server() -> None:
    server, clock = Server(), Clock()
    first, second = Member(server, clock), Member(server, clock)
    lease = server.lease
    assert first.tried()
    held, server.lease = server.lease, lease
    # What the second read before the first wrote.
    second._view = look(None, None, TIMING, clock.now)
    server.lease = held
    with pytest.raises(ConflictError):
        second._write(None, None)
    assert not second.acts()


def test_a_lease_without_content_is_one_that_nobody_holds() -> None:
    assert LeaseRecord.of({"metadata": {}}) == LeaseRecord(holder="")
    assert LeaseRecord.of({"spec": {"holderIdentity": None, "leaseDurationSeconds": None}}) == LeaseRecord(holder="")
