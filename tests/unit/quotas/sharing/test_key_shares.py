"""The shares of one key: who may be using what, and who is granted what next."""

import pytest

from quotas.sharing.lease_values import LesseeId, Wish
from quotas.sharing.lessor import KeyShares, Part

A, B, C = (LesseeId(name, 1) for name in "abc")
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
