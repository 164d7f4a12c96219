"""The lessor: sessions, who is gone, and when nothing is raised."""

import pytest

from quotas.sharing.capacities import fill
from quotas.sharing.lease_values import DEFAULT_KEY, GONE_MS, Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessor import IDLE_MS, KeyShares, LeaseRefusedError, Lessor, Part, SessionLostError

TERMS = LeaseTerms(15_000, 1000, 4)
SILENT_MS = 15_000 + TERMS.slack_ms
A, B = LesseeId("a", 1), LesseeId("b", 1)
WAITS = Wish(1.0, 1.0)
EQUAL = 0.995 / 4


def lessor(learning_ms: int = 0) -> Lessor:
    return Lessor(TERMS, 1, lambda _: 1.0, 0, learning_ms)


class Peer:
    """A lessee that says what the test tells it to."""

    def __init__(self, holder: Lessor, name: LesseeId, held: dict[str, float] | None = None) -> None:
        self.holder, self.name = holder, name
        self.number = self.session = self.version = 0
        self.held = {DEFAULT_KEY: TERMS.least} if held is None else held
        self.shares: dict[str, float | None] = {}

    def report(
        self, now_ms: int, wishes: dict[str, Wish | None] | None = None, applied: int | None = None
    ) -> None:
        self.number += 1
        version = self.version if applied is None else applied
        held = {} if self.session else self.held
        self.holder.report(
            Report(self.name, self.session, self.number, version, wishes or {}, held, 4), now_ms
        )

    def take(self, grants: Grants) -> None:
        self.session, self.version = grants.session, grants.version
        self.shares |= grants.shares


def exchange(holder: Lessor, peers: list[Peer], now_ms: int) -> None:
    """Deliver what is due."""
    by_name = {peer.name: peer for peer in peers}
    for name, grants in holder.grants(now_ms):
        by_name[name].take(grants)


def settle(holder: Lessor, peers: list[Peer], now_ms: int, rounds: int = 4) -> None:
    for _ in range(rounds):
        for peer in peers:
            peer.report(now_ms)
        exchange(holder, peers, now_ms)


def want(holder: Lessor, peers: list[Peer], *waiting: Peer) -> None:
    """Have some lessees wait for the whole of "k", and all know of it."""
    for peer in waiting:
        peer.report(0, {"k": WAITS})
    settle(holder, peers, 0)


def pair() -> tuple[Lessor, list[Peer]]:
    """A lessor and two lessees that have their default shares."""
    holder = lessor()
    peers = [Peer(holder, A), Peer(holder, B)]
    settle(holder, peers, 0)
    return holder, peers


def test_each_lessee_has_an_equal_share_of_keys_without_a_name() -> None:
    _, peers = pair()
    assert [peer.shares[DEFAULT_KEY] for peer in peers] == [pytest.approx(EQUAL)] * 2


def test_a_lessee_that_waits_gets_what_the_others_do_not_want() -> None:
    holder, peers = pair()
    a, b = peers
    want(holder, peers, a)
    assert a.shares["k"] == pytest.approx(0.995 - TERMS.least, rel=0.01)
    assert b.shares["k"] == pytest.approx(TERMS.least)


def test_a_lessee_that_is_silent_for_a_lease_is_gone_and_no_sooner() -> None:
    holder, peers = pair()
    a, b = peers
    b.report(1000)
    assert [name for name, _ in holder.grants(SILENT_MS - 1)] == [B]
    assert holder.lessees == [A, B]
    holder.expire(SILENT_MS)
    assert holder.lessees == [B]
    with pytest.raises(SessionLostError):
        a.report(SILENT_MS)


def test_what_a_silent_lessee_had_stays_until_the_lessor_was_confirmed_after_its_lease() -> None:
    holder = lessor()
    peers = [Peer(holder, A)]
    settle(holder, peers, 0)
    holder.confirm(SILENT_MS - 1)
    holder.expire(SILENT_MS + 100_000)
    assert holder.lessees == [A]
    holder.confirm(SILENT_MS)
    holder.expire(SILENT_MS + 100_000)
    assert not holder.lessees


def test_a_new_lessor_renews_what_lessees_hold_and_raises_nothing_while_it_learns() -> None:
    holder = lessor(learning_ms=20_000)
    a, b = peers = [Peer(holder, A, {DEFAULT_KEY: EQUAL, "k": 0.7}), Peer(holder, B)]
    for now_ms in range(0, 20_000, 1000):
        for peer in peers:
            peer.report(now_ms, {"k": WAITS})
        exchange(holder, peers, now_ms)
        assert (a.shares["k"], b.shares["k"]) == (0.7, TERMS.least)
    settle(holder, peers, 20_000, rounds=6)
    assert [peer.shares["k"] for peer in (a, b)] == pytest.approx([0.4975] * 2, rel=0.03)


def test_lessees_that_were_cut_off_come_down_while_the_lessor_learns() -> None:
    holder = lessor(learning_ms=20_000)
    a, b = peers = [Peer(holder, A, {DEFAULT_KEY: EQUAL, "k": 0.9}), Peer(holder, B, {DEFAULT_KEY: 0.25})]
    settle(holder, peers, 0)
    assert holder.used("k") <= 1.0
    assert a.shares["k"] is not None
    assert a.shares["k"] < 0.9
    assert b.shares["k"] is not None


@pytest.mark.parametrize("number", [1, 3], ids=["repeated", "one is missing"])
def test_a_report_out_of_order_ends_the_session(number: int) -> None:
    holder = lessor()
    a = Peer(holder, A)
    a.report(0)
    exchange(holder, [a], 0)
    a.number = number - 1
    with pytest.raises(SessionLostError):
        a.report(0)


def test_twice_as_many_processes_as_configured_are_refused_since_upgrades_need_no_more() -> None:
    holder = lessor()
    for run in range(8):
        Peer(holder, LesseeId("a", run)).report(0)
    with pytest.raises(LeaseRefusedError, match="8 lessees"):
        Peer(holder, LesseeId("a", 8)).report(0)


def test_a_key_without_a_demand_loses_its_shares_after_a_while() -> None:
    holder, peers = pair()
    a, b = peers
    want(holder, peers, a)
    a.report(1000, {"k": None})
    exchange(holder, peers, 1000)
    settle(holder, peers, 1000 + IDLE_MS - 1)
    assert holder.keys == ["k"]
    settle(holder, peers, 1000 + IDLE_MS)
    assert not holder.keys
    assert a.shares["k"] is None
    assert b.shares["k"] is None


def test_a_lessee_that_is_known_to_be_gone_frees_its_share_at_once() -> None:
    holder, peers = pair()
    want(holder, peers, *peers)
    holder.leave(A)
    settle(holder, peers[1:], 0)
    assert peers[1].shares["k"] == pytest.approx(0.995, rel=0.01)


def test_more_lessees_than_configured_make_default_shares_smaller() -> None:
    holder = lessor()
    peers = [Peer(holder, LesseeId("p", run)) for run in range(5)]
    settle(holder, peers, 0, rounds=6)
    assert sum(peer.shares[DEFAULT_KEY] or 0.0 for peer in peers) <= 1.0
    assert peers[4].shares[DEFAULT_KEY] == pytest.approx(0.995 / 5)


def test_a_lessor_learns_until_it_was_confirmed_after_the_last_lease_of_its_predecessor() -> None:
    holder = lessor(learning_ms=20_000)
    a = Peer(holder, A)
    holder.confirm(19_999)
    a.report(20_000, {"k": WAITS})
    exchange(holder, [a], 20_000)
    assert a.shares == {DEFAULT_KEY: TERMS.least}  # another lessee may have another lessor by now
    holder.confirm(20_000)
    settle(holder, [a], 20_000)
    assert a.shares["k"] == pytest.approx(0.995, rel=0.01)


def test_leases_last_until_the_last_lessee_is_gone_or_has_left() -> None:
    holder = lessor()
    peers = [Peer(holder, A), Peer(holder, B)]
    assert holder.lasting_ms(0) == 0
    settle(holder, peers[:1], 0)
    settle(holder, peers[1:], 1000)
    assert holder.lasting_ms(3000) == SILENT_MS - 2000
    holder.leave(B)
    assert holder.lasting_ms(3000) == SILENT_MS - 3000
    holder.leave(A)
    assert holder.lasting_ms(3000) == 0


def test_leases_of_a_predecessor_last_while_the_lessor_learns() -> None:
    assert lessor(learning_ms=20_000).lasting_ms(5000) == 15_000


def known(learning_ms: int, *awaited: int) -> Lessor:
    """A lessor whose predecessor's lessees are known; what it leases is written down."""
    found = Lessor(TERMS, 1, lambda _: 1.0, 0, learning_ms, frozenset(awaited))
    found.enlist(0)
    return found


def test_learning_ends_when_all_lessees_of_the_predecessor_have_reported() -> None:
    holder = known(20_310, 1, 2)
    first = Peer(holder, LesseeId("a", 1))
    settle(holder, [first], 0)
    assert holder.learning(0)
    assert first.shares[DEFAULT_KEY] == TERMS.least
    second = Peer(holder, LesseeId("b", 2))
    settle(holder, [first, second], 100)
    assert not holder.learning(100)
    assert first.shares[DEFAULT_KEY] == pytest.approx(EQUAL)


def test_learning_ends_when_the_missing_lessee_has_ended_and_its_workers_too() -> None:
    holder = known(20_310, 1, 9)
    peer = Peer(holder, LesseeId("a", 1))
    settle(holder, [peer], 0)
    holder.ended(9, 100)
    settle(holder, [peer], 100 + GONE_MS - 1)
    assert holder.learning(100 + GONE_MS - 1)
    settle(holder, [peer], 100 + GONE_MS)
    assert not holder.learning(100 + GONE_MS)


def test_learning_takes_its_time_if_one_lessee_is_missing_or_none_is_known() -> None:
    for holder in (known(20_310, 1, 9), lessor(20_310)):
        peer = Peer(holder, LesseeId("a", 1))
        for now_ms in range(0, 20_310, 1000):
            settle(holder, [peer], now_ms, rounds=1)
        assert holder.learning(20_309)
        assert not holder.learning(20_310)


def test_a_newcomer_is_leased_to_when_a_roster_with_it_is_written() -> None:
    holder = known(0)
    peer = Peer(holder, A)
    peer.report(0)
    assert list(holder.grants(0)) == []
    number, runs = holder.roster()
    assert runs == frozenset((A.run,))
    holder.enlist(number - 1)
    assert list(holder.grants(100)) == []
    holder.enlist(number)
    assert [name for name, _ in holder.grants(200)] == [A]


def test_a_lessee_that_comes_back_is_a_newcomer_in_the_roster() -> None:
    holder = known(0)
    peer = Peer(holder, A)
    peer.report(0)
    number, _ = holder.roster()
    holder.leave(A)
    assert holder.roster()[1] == frozenset()
    back = Peer(holder, A)
    back.report(10)
    holder.enlist(number)  # the response to what was written before it had left
    assert list(holder.grants(20)) == []
    holder.enlist(holder.roster()[0])
    assert len(list(holder.grants(30))) == 1


def test_the_roster_is_unknown_while_a_lessor_learns_of_lessees_it_does_not_know() -> None:
    holder = lessor(20_310)
    peer = Peer(holder, A)
    settle(holder, [peer], 0)
    assert holder.roster()[1] is None
    for now_ms in range(0, 20_500, 100):
        settle(holder, [peer], now_ms, rounds=1)
    assert holder.roster()[1] == frozenset((A.run,))


def test_awaited_lessees_stay_in_the_roster_until_they_have_ended() -> None:
    holder = known(20_310, 1, 9)
    settle(holder, [Peer(holder, LesseeId("a", 1))], 0)
    number, runs = holder.roster()
    assert (number, runs) == (0, frozenset((1, 9)))
    holder.ended(9, 0)
    list(holder.grants(GONE_MS))
    assert holder.roster() == (1, frozenset((1,)))


def test_the_shares_of_a_lessee_that_has_ended_are_free_when_its_workers_use_them_no_more() -> None:
    holder = lessor()
    a, _ = peers = [Peer(holder, LesseeId("a", 1)), Peer(holder, LesseeId("b", 2))]
    settle(holder, peers, 0)
    want(holder, peers, *peers)
    holder.ended(2, 1000)
    a.report(1000 + GONE_MS - 1)
    exchange(holder, peers, 1000 + GONE_MS - 1)
    assert a.shares["k"] == pytest.approx(0.4975)
    settle(holder, [a], 1000 + GONE_MS)
    assert a.shares["k"] == pytest.approx(0.995)


def test_a_lessee_that_reports_has_not_ended() -> None:
    holder = lessor()
    peer = Peer(holder, A)
    settle(holder, [peer], 0)
    holder.ended(A.run, 1000)
    peer.report(1100)
    assert [name for name, _ in holder.grants(1000 + GONE_MS)] == [A]


def test_weights_of_very_different_sizes_lose_no_part() -> None:
    assert fill([1.0, 1.0], [1e9, 1e-9], 1.0) == pytest.approx([1.0, 1e-18])
    assert sum(fill([0.5, 1.0, 1.0], [1e9, 1e-300, 1e-300], 1.0)) == pytest.approx(1.0)


def test_entries_without_weight_get_nothing() -> None:
    assert fill([1.0, 0.2], [0.0, 1.0], 1.0) == [0.0, 0.2]


C = LesseeId("c", 1)
LEAST = 0.001


def shares_of(*parts: float | None) -> KeyShares:
    """Parts that are acknowledged; the default share of each is a quarter."""
    default = KeyShares(None)
    default.parts = {lessee: Part(0.25) for lessee in (A, B, C)}
    key = KeyShares(default)
    key.parts = {lessee: Part(share) for lessee, share in zip((A, B, C), parts, strict=False)}
    return key


def send(key: KeyShares, lessee: LesseeId, share: float | None, version: int = 1) -> None:
    part = key.parts[lessee]
    part.sent, part.version = share, version


def test_a_lowered_share_counts_until_it_is_acknowledged() -> None:
    key = shares_of(0.5, 0.25)
    send(key, A, 0.1)
    assert key.used() == 0.75
    key.acknowledge(A, 1)
    assert key.used() == 0.35


def test_a_raised_share_counts_from_when_it_was_sent() -> None:
    key = shares_of(0.25, 0.25)
    send(key, A, 0.6)
    assert key.used() == 0.85


def test_an_earlier_acknowledgement_does_not_count() -> None:
    key = shares_of(0.5)
    send(key, A, 0.1, version=7)
    key.acknowledge(A, 6)
    assert key.used() == 0.5


def test_others_come_down_before_a_share_is_raised() -> None:
    key = shares_of(0.5, 0.5)
    key.parts[A].wish = Wish(1.0, 3)
    assert key.divide(1.0, LEAST) == [(B, LEAST)]  # B wants nothing; nothing is free for A yet
    send(key, B, LEAST)
    assert key.divide(1.0, LEAST) == []
    key.acknowledge(B, 1)
    assert dict(key.divide(1.0, LEAST)) == pytest.approx({A: 0.999})


def test_lessees_that_wait_share_by_the_number_of_their_connections() -> None:
    key = shares_of(LEAST, LEAST)
    key.parts[A].wish = Wish(1.0, 3)
    key.parts[B].wish = Wish(1.0, 1)
    granted = dict(key.divide(1.0, LEAST))
    assert granted[A] == pytest.approx(0.75, abs=0.01)
    assert granted[B] == pytest.approx(0.25, abs=0.01)


def test_a_share_is_not_lowered_while_the_others_have_what_they_want() -> None:
    key = shares_of(0.5, 0.5)
    key.parts[A].wish = Wish(0.3, 1)
    assert key.divide(1.0, LEAST) == []


def test_shares_come_down_where_there_is_less_than_before() -> None:
    key = shares_of(0.5, 0.25)
    key.parts[A].wish = Wish(1.0, 1)
    key.parts[B].wish = Wish(1.0, 1)
    assert dict(key.divide(0.3, LEAST)) == pytest.approx({A: 0.15, B: 0.15})


def test_a_key_is_released_from_above_before_all_follow_their_default_share() -> None:
    key = shares_of(0.7, 0.01, None)
    assert key.release() == [(A, 0.25)]
    send(key, A, 0.25)
    assert key.release() == []
    key.acknowledge(A, 1)
    assert key.release() == [(A, None), (B, None)]
    for lessee in (A, B):
        send(key, lessee, None, 2)
    assert key.used() == 0.75
    for lessee in (A, B):
        key.acknowledge(lessee, 2)
    assert key.released


def test_default_shares_are_made_equal() -> None:
    default = KeyShares(None)
    default.parts = {A: Part(0.6), B: Part(0.1)}
    assert dict(default.equalize(0.4, 0.8)) == pytest.approx({A: 0.4, B: 0.2})  # of what is free now
