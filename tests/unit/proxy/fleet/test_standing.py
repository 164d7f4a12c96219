"""proxy.fleet.standing: who holds, without Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import Address
from proxy.fleet.standing import (
    Claim,
    Ruling,
    Standing,
    choose,
    read_claim,
    read_lasting,
    read_ruling,
    write_claim,
    write_lasting,
    write_ruling,
)

TENURE_MS, LASTING_MS = 5000, 20_000
A, B = Address("gw-a", 19070), Address("gw-b", 19070)


def test_claims_and_rulings_come_back() -> None:
    for claim in (Claim("a", A, 0), Claim("b", None, 2**64 - 1)):
        assert read_claim(write_claim(claim)) == claim
    assert read_ruling(write_ruling(Ruling("a", A, 7))) == Ruling("a", A, 7)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda data: b"\x01" + data))
def test_any_bytes_are_a_claim_or_none(data: bytes) -> None:
    found = read_claim(data)
    assert found is None or read_claim(write_claim(found)) == found


def test_holder_stays_when_others_join() -> None:
    member, ruling = choose({"2": Claim("b", B, 3), "1": Claim("a", A, 0), "0": Claim("0", A, 0)})
    assert (member, ruling) == ("2", Ruling("b", B, 3))


def test_another_holder_begins_another_term() -> None:
    assert choose({"1": Claim("a", A, 0)})[1].term == 1
    # b holds, but cannot be reached any more
    assert choose({"1": Claim("a", A, 0), "2": Claim("b", None, 3)}) == ("1", Ruling("a", A, 4))


def test_latest_of_two_holders_stays() -> None:
    member, ruling = choose({"1": Claim("a", A, 3), "2": Claim("b", B, 4)})
    assert (member, ruling.term) == ("2", 4)


def test_member_without_address_is_never_the_holder() -> None:
    assert choose({"1": Claim("a", None, 0)}) == (None, Ruling("", None, 0))
    assert choose({}) == (None, Ruling("", None, 0))


def test_choice_does_not_depend_on_the_order_of_members() -> None:
    claims = {"1": Claim("a", A, 0), "2": Claim("a", B, 0), "3": Claim("b", B, 0)}
    assert choose(claims) == choose(dict(reversed(claims.items())))
    assert choose(claims)[0] == "1"


def test_tenure_ends_without_confirmation_and_begins_again_with_it() -> None:
    standing = Standing(TENURE_MS, LASTING_MS)
    standing.rule(Ruling("a", A, 1), 1000, mine=True)
    assert standing.holds(1000 + TENURE_MS - 1)
    standing.confirm(3000)
    assert standing.holds(3000 + TENURE_MS - 1)
    assert not standing.holds(3000 + TENURE_MS)
    assert standing.term(3000 + TENURE_MS) == 0
    assert standing.holder == A
    standing.confirm(9000)
    assert standing.holds(9000)


def test_earlier_confirmation_takes_nothing_away() -> None:
    standing = Standing(TENURE_MS, LASTING_MS)
    standing.rule(Ruling("a", A, 1), 1000, mine=True)
    standing.confirm(500)
    assert standing.holds(1000 + TENURE_MS - 1)


def test_ruling_of_the_same_term_confirms_nothing() -> None:
    standing = Standing(TENURE_MS, LASTING_MS)
    standing.rule(Ruling("a", A, 1), 0, mine=True)
    standing.rule(Ruling("a", A, 1), 4000, mine=True)
    assert not standing.holds(TENURE_MS)
    standing.rule(Ruling("a", A, 1), 6000, mine=True)
    assert standing.holds(6000)


@pytest.mark.parametrize(("ruling", "holds"), [(Ruling("b", B, 2), False), (Ruling("a", A, 2), True)])
def test_another_term_ends_the_tenure_at_once(ruling: Ruling, holds: bool) -> None:
    standing = Standing(TENURE_MS, LASTING_MS)
    standing.rule(Ruling("a", A, 1), 0, mine=True)
    standing.rule(ruling, 1000, mine=holds)
    assert standing.holds(1000) is holds
    assert standing.holder == ruling.address
    assert standing.term(1000) == (2 if holds else 0)
    standing.confirm(1500)  # of a request that was under way
    assert standing.holds(1600) is holds


def chosen(before: Ruling | None = None) -> Standing:
    """A member that was chosen, after an earlier ruling."""
    standing = Standing(TENURE_MS, LASTING_MS)
    if before is not None:
        standing.rule(before, 0, mine=False)
    standing.rule(Ruling("a", A, 1), 1000, mine=True)
    assert standing.asks
    return standing


@given(st.integers(0, 9_999_999), st.text())
def test_what_a_holder_commits_comes_back(lasting_ms: int, name: str) -> None:
    assert read_lasting(write_lasting(lasting_ms, name)) == lasting_ms


@given(st.text() | st.text().map("leases_ms=".__add__))
def test_any_commit_says_how_long_leases_last_or_none(committed: str) -> None:
    lasting_ms = read_lasting(committed)
    assert lasting_ms is None or lasting_ms >= 0


@pytest.mark.parametrize(
    ("committed", "learning_ms"),
    [
        (None, 0),
        (write_lasting(0, "b"), 0),
        (write_lasting(14_000, "b"), 14_000),
        (write_lasting(60_000, "b"), 60_000),
        ("b", LASTING_MS),
        ("", LASTING_MS),
        ("leases_ms=-1 holder=b", LASTING_MS),
    ],
    ids=str,
)
def test_a_holder_learns_for_as_long_as_leases_of_its_predecessor_may_last(
    committed: str | None, learning_ms: int
) -> None:
    standing = chosen()
    standing.succeed(committed)
    assert not standing.asks
    assert standing.confirm(1500) == learning_ms


def test_a_holder_that_ends_and_begins_again_learns_of_its_own_leases() -> None:
    standing = chosen()
    standing.succeed(None)
    assert standing.confirm(1500) == 0
    assert not standing.holds(1500 + TENURE_MS)
    assert standing.confirm(9000) == LASTING_MS


def test_a_commit_that_was_deleted_is_no_proof_that_there_was_no_holder() -> None:
    standing = chosen(before=Ruling("b", B, 1))
    standing.succeed(None)
    assert standing.confirm(1500) == LASTING_MS


def test_a_group_without_a_holder_before_has_no_leases() -> None:
    standing = chosen(before=Ruling("", None, 0))
    standing.succeed(None)
    assert standing.confirm(1500) == 0


def test_a_member_that_was_chosen_again_before_it_was_confirmed_has_nothing_to_learn() -> None:
    standing = chosen()
    standing.rule(Ruling("a", A, 1), 1100, mine=True)
    standing.succeed(None)
    assert standing.confirm(1500) == 0


def test_a_commit_of_its_own_that_was_deleted_is_no_proof_either() -> None:
    standing = chosen()
    standing.succeed(None)
    standing.confirm(1500)
    standing.rule(Ruling("a", A, 1), 2000, mine=True)
    standing.succeed(None)
    assert standing.confirm(2500) == LASTING_MS


def test_another_ruling_has_the_predecessor_asked_for_again() -> None:
    standing = chosen()
    standing.succeed(None)
    standing.rule(Ruling("b", B, 2), 1200, mine=False)
    asked_of_another = standing.asks
    standing.rule(Ruling("a", A, 3), 1300, mine=True)
    assert (asked_of_another, standing.asks) == (False, True)
    standing.succeed(None)
    assert standing.confirm(1400) == LASTING_MS
