"""quotas.sharing.book, with quotas.sharing.peer at the other end: three peers, leases of 5 s, shares in parts of one.

An equal share is 1/3, the least 0.02/3; periods are 1 s and the slack 110 ms.
"""

from math import inf

import pytest

from quotas.sharing.book import LeaseBook, LeaseRefusedError
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import Grant, LeaseAnswer, LeaseRequest, LeaseTerms, Wish

TERMS = LeaseTerms(("a", "b", "c"), 5000)
LEARNED = 5110  # a lease and the slack
Q = 3_000_000.0
F = 7
EVERYTHING = (Wish(F, Q, Q),)
NOTHING = (Wish(F, Q, 0.0),)


class Side:
    """A peer and the book it asks; messages take no time unless they are kept back."""

    def __init__(self, book: LeaseBook, name: str, run: int, now_ms: int = 0) -> None:
        self.book = book
        self.peer = LeasePeer(TERMS, name, run, now_ms)

    def ask(self, wishes: tuple[Wish, ...], now_ms: int) -> LeaseAnswer:
        """The answer is under way."""
        return self.book.answer(self.peer.ask(wishes, now_ms), lambda _: Q, now_ms)

    def talk(self, wishes: tuple[Wish, ...], now_ms: int) -> float:
        """A whole round; gives the share that is used then."""
        assert self.peer.take(self.ask(wishes, now_ms), now_ms)
        return self.share(now_ms)

    def share(self, now_ms: int) -> float:
        return self.peer.share(F, now_ms)


def learned(wishes: tuple[Wish, ...] = NOTHING) -> tuple[LeaseBook, Side, Side, Side]:
    """Three peers whose time of learning is over; all want the same, and have taken a lease and said so."""
    book = LeaseBook(TERMS, 99)
    sides = [Side(book, name, run) for run, name in enumerate(TERMS.peers, 1)]
    for now_ms in (0, LEARNED, LEARNED):
        for side in sides:
            side.talk(wishes, now_ms)
    return book, sides[0], sides[1], sides[2]


def test_no_peer_gets_a_lease_before_one_lease_is_over() -> None:
    book = LeaseBook(TERMS, 99)
    side = Side(book, "a", 1)
    assert side.talk(EVERYTHING, 0) == TERMS.least  # it was just started
    assert not side.peer.holding
    assert side.talk(EVERYTHING, LEARNED - 1) == TERMS.least
    assert side.talk(EVERYTHING, LEARNED) == TERMS.equal  # nobody lends
    assert side.peer.holding


def test_peer_with_all_the_load_gets_all_but_the_least_shares() -> None:
    _, a, _, _ = learned()
    assert a.talk(EVERYTHING, LEARNED) == pytest.approx(1 - 2 * 0.02 / 3)  # 98.7 %
    assert a.peer.rate(F, Q, True, LEARNED) == pytest.approx(2_960_000)


def test_equal_loads_have_equal_shares() -> None:
    _, a, b, c = learned(EVERYTHING)
    assert [side.share(LEARNED) for side in (a, b, c)] == pytest.approx([1 / 3] * 3)


def test_shares_are_filled_from_below() -> None:
    book, a, b, c = learned()
    small = (Wish(F, Q, 600_000.0),)  # 0.2 of the quota
    for _ in range(3):
        for side, wishes in ((a, small), (b, EVERYTHING), (c, EVERYTHING)):
            side.talk(wishes, LEARNED)
    assert [side.share(LEARNED) for side in (a, b, c)] == pytest.approx([0.2, 0.4, 0.4])
    assert book.present(LEARNED) == 3


def test_share_is_granted_only_after_it_was_returned() -> None:
    _, a, b, _ = learned()
    a.talk(EVERYTHING, LEARNED)
    assert b.talk(EVERYTHING, LEARNED) == pytest.approx(TERMS.least)
    kept = a.ask(EVERYTHING, LEARNED + 1000)  # half of it is taken from it, and it does not know yet
    assert b.talk(EVERYTHING, LEARNED + 1000) == pytest.approx(TERMS.least)
    a.peer.take(kept, LEARNED + 1000)
    assert b.talk(EVERYTHING, LEARNED + 1000) == pytest.approx(TERMS.least), "it has not said that it knows"
    a.talk(EVERYTHING, LEARNED + 1100)
    assert b.talk(EVERYTHING, LEARNED + 1200) == pytest.approx((1 - TERMS.least) / 2)


def test_lease_ends_by_itself_and_a_borrowed_share_ends_first() -> None:
    _, a, b, c = learned()
    answer = a.ask(EVERYTHING, LEARNED + 700)
    a.peer.take(answer, LEARNED + 900)
    # b and c have promised at LEARNED, for 5000 ms less the slack of 110: so what a borrows ends 700 earlier.
    assert answer.grants[0].hold_ms == 5000 - 110 - 700
    ends = LEARNED + 700 + answer.grants[0].hold_ms
    assert a.share(ends - 1) == pytest.approx(1 - 2 * TERMS.least)
    assert a.share(ends) == TERMS.equal
    assert b.share(LEARNED + 4999) == c.share(LEARNED + 4999) == TERMS.least
    assert b.share(LEARNED + 5000) == TERMS.equal


def test_answer_that_got_lost_extends_no_promise() -> None:
    _, a, b, c = learned()
    b.ask(NOTHING, LEARNED + 3000)  # its answer never comes, and its promise ends as before
    c.talk(NOTHING, LEARNED + 3000)
    c.talk(NOTHING, LEARNED + 3000)
    answer = a.ask(EVERYTHING, LEARNED + 3000)
    assert answer.grants[0].hold_ms == 5000 - 110 - 3000


def test_lost_peer_keeps_its_equal_share() -> None:
    _, a, b, _ = learned()
    for now_ms in range(LEARNED, LEARNED + 8000, 1000):  # c is silent
        a.talk(EVERYTHING, now_ms)
        b.talk(NOTHING, now_ms)
    assert a.share(LEARNED + 7000) == pytest.approx(2 / 3 - TERMS.least)


def test_clocks_that_differ_by_half_a_percent_do_not_overlap() -> None:
    """True time; the lender's clock is fast, the borrower's slow, by half a percent of the 5 s that both hold."""
    _, a, b, c = learned()
    for side in (b, c):
        side.talk(NOTHING, LEARNED)
    grant = a.ask(EVERYTHING, LEARNED).grants[0]
    assert grant.hold_ms * 1.005 < 5000 / 1.005
    assert grant.hold_ms * 1.01 < 5000 / 1.01


def test_restarted_peer_uses_the_least_until_its_promise_is_over() -> None:
    book, a, b, _ = learned()
    a.talk(EVERYTHING, LEARNED)
    again = Side(book, "b", 12, LEARNED + 500)
    assert again.share(LEARNED + 500) == again.share(LEARNED + 500 + LEARNED - 1) == TERMS.least
    assert again.share(LEARNED + 500 + LEARNED) == TERMS.equal
    assert again.talk(EVERYTHING, LEARNED + 600) == pytest.approx(TERMS.least), "a uses the rest"
    with pytest.raises(LeaseRefusedError) as refused:
        b.ask(NOTHING, LEARNED + 700)
    assert refused.value.cause == "twice"


def test_peer_and_holder_restarted_together_do_not_exceed_the_quota() -> None:
    _, a, _, _ = learned()
    a.talk(EVERYTHING, LEARNED)
    anew = LeaseBook(TERMS, 100)
    again = Side(anew, "b", 12, LEARNED + 10)
    assert again.talk(EVERYTHING, LEARNED + 20) == TERMS.least
    ends = LEARNED + 5000 - 110
    assert again.share(ends) == TERMS.least
    assert a.share(ends) == TERMS.equal


def test_promise_to_one_holder_is_kept_before_another_is_heard() -> None:
    _, a, b, _ = learned()
    a.talk(EVERYTHING, LEARNED)
    other = LeaseBook(TERMS, 100)
    Side(other, "b", 2).talk(EVERYTHING, LEARNED - 20_000)  # it knows b already, so that it does not learn
    b.book = other
    assert b.peer.take(b.ask(EVERYTHING, LEARNED + 10), LEARNED + 10)
    assert b.share(LEARNED + 10) == TERMS.least
    assert b.talk(EVERYTHING, LEARNED + 5000) == TERMS.equal


def test_peer_that_went_by_another_holder_meanwhile_counts_with_an_equal_share() -> None:
    book, a, _, _ = learned()
    request = LeaseRequest("b", 2, 50, 49, NOTHING)  # it has taken something that was not said here
    book.answer(request, lambda _: Q, LEARNED)
    assert a.talk(EVERYTHING, LEARNED) == pytest.approx(1 - TERMS.equal - TERMS.least)


def test_old_request_is_refused() -> None:
    book, _, _, _ = learned()
    late = LeaseRequest("a", 1, 3, 2, EVERYTHING)
    with pytest.raises(LeaseRefusedError) as refused:
        book.answer(late, lambda _: Q, LEARNED)
    assert (refused.value.cause, str(refused.value)) == ("order", "request 3 comes after 3")


def test_unknown_name_is_refused() -> None:
    with pytest.raises(LeaseRefusedError, match=r"'x' is not one of the holder's leases.peers"):
        LeaseBook(TERMS, 1).answer(LeaseRequest("x", 1, 1, 0, ()), lambda _: Q, 0)


def test_smaller_quota_counts() -> None:
    _, a, b, _ = learned()
    b.talk((Wish(F, 1_500_000.0, 0.0),), LEARNED)
    answer = a.ask(EVERYTHING, LEARNED)
    (grant,) = answer.grants
    assert grant == Grant(F, 1_500_000.0, grant.share, 4890)
    assert grant.share == pytest.approx(1 - 2 * TERMS.least)
    a.peer.take(answer, LEARNED)
    assert a.peer.rate(F, Q, True, LEARNED) == pytest.approx(1_480_000)
    assert a.peer.rate(F, Q, True, LEARNED + 5000) == Q / 3, "what it knows itself, when nobody tells it more"
    assert a.peer.rate(F, 900_000.0, True, LEARNED) == pytest.approx(888_000)


def test_quota_that_only_others_know_holds_here_too() -> None:
    _, a, b, _ = learned()
    b.talk((Wish(F, 1_500_000.0, 0.0),), LEARNED)
    answer = a.book.answer(a.peer.ask((Wish(F, inf, 1.0),), LEARNED), lambda _: None, LEARNED)
    a.peer.take(answer, LEARNED)
    assert a.peer.quota(F, None, False, LEARNED) == 1_500_000
    assert a.peer.rate(F, None, False, LEARNED + 5000) == 500_000  # an equal share, and never no throttle
    assert a.peer.rate(F, None, True, LEARNED + 5000) is None  # it knows that there is none


def test_follower_without_any_quota_gets_no_grant() -> None:
    book, a, _, _ = learned()
    answer = book.answer(a.peer.ask((Wish(8, inf, 1.0),), LEARNED), lambda _: None, LEARNED)
    assert answer.grants == ()
    a.peer.take(answer, LEARNED)
    assert a.peer.rate(8, None, False, LEARNED) is None


def test_quota_of_zero_is_shared_as_any_other() -> None:
    book, a, _, _ = learned()
    answer = book.answer(a.peer.ask((Wish(F, 0.0, 0.0),), LEARNED), lambda _: None, LEARNED)
    a.peer.take(answer, LEARNED)
    assert a.peer.rate(F, 0.0, True, LEARNED) == 0


def test_load_that_moves_is_followed_within_two_periods() -> None:
    """With the times at which a peer asks by itself: `due`, looked at every 100 ms."""
    _, a, b, c = learned()
    wishes = {"a": EVERYTHING, "b": NOTHING, "c": NOTHING}
    sides = {"a": a, "b": b, "c": c}

    def live(since: int, until: int) -> None:
        for now_ms in range(since, until, 100):
            for name, side in sides.items():
                if side.peer.due(wishes[name], now_ms):
                    side.talk(wishes[name], now_ms)

    live(LEARNED, LEARNED + 2000)
    assert a.share(LEARNED + 2000) > 0.95
    wishes = {"a": NOTHING, "b": EVERYTHING, "c": NOTHING}
    live(LEARNED + 2000, LEARNED + 4000)
    assert b.share(LEARNED + 4000) > 0.95
    wishes = {"a": EVERYTHING, "b": EVERYTHING, "c": EVERYTHING}
    live(LEARNED + 4000, LEARNED + 6000)
    for side in sides.values():
        assert side.share(LEARNED + 6000) == pytest.approx(1 / 3, abs=0.01)
