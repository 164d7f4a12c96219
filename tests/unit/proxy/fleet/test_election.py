"""proxy.fleet.election: who holds, without Kafka."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.config import Address
from proxy.fleet.election import (
    NO_TERM,
    TERM_MAX,
    Claim,
    Lasting,
    Ruling,
    Standing,
    Statements,
    Term,
    choose,
    choose_all,
)
from proxy.fleet.messages import NONCE_BYTES

TENURE_MS, LASTING_MS = 5000, 20_310
A, B = Address("gw-a", 19070), Address("gw-b", 19070)
RUNS = {"a": 1, "b": 2, "0": 3}


def claim(
    name: str, address: Address | None, number: int = 0, known: Term = NO_TERM, *, bound: bool = True
) -> Claim:
    return Claim(name, address, RUNS[name], number, known, b"", bound)


def ruling(name: str, address: Address | None, number: int, before: Term = NO_TERM) -> Ruling:
    return Ruling(name, address, Term(number, RUNS[name]), before)


IN_7 = claim("a", A, 7, bound=False)  # one that anyone could send again


@pytest.mark.parametrize(
    ("claims", "member", "chosen"),
    [
        ([claim("a", A)], 0, ruling("a", A, 1)),
        # The holder stays when others join, and the latest of two.
        ([claim("b", B, 3), claim("a", A), claim("0", A)], 0, ruling("b", B, 3, Term(3, 2))),
        ([claim("a", A, 3), claim("b", B, 4)], 1, ruling("b", B, 4, Term(4, 2))),
        # b holds, but cannot be reached any more: another one begins another term.
        ([claim("a", A), claim("b", None, 3)], 0, ruling("a", A, 4, Term(3, 2))),
        # The holder of the term that members know of is gone.
        ([claim("a", A, known=Term(5, 9)), claim("b", B)], 0, ruling("a", A, 6, Term(5, 9))),
        # b was the holder in term 4, while a, which is so in term 3, was not in the group.
        ([claim("a", A, 3), claim("0", B, known=Term(4, 2))], 0, ruling("a", A, 5, Term(4, 2))),
        ([claim("a", A), claim("a", B), claim("b", B)], 0, ruling("a", A, 1)),
        ([claim("a", None)], None, Ruling("", None, NO_TERM)),
        ([], None, Ruling("", None, NO_TERM)),
        ([IN_7], None, Ruling("", None, NO_TERM, Term(7, 1))),
        ([IN_7, claim("b", B)], 1, ruling("b", B, 8, Term(7, 1))),
    ],
)
def test_holder_is_chosen_whatever_the_order_of_members(
    claims: list[Claim], member: int | None, chosen: Ruling
) -> None:
    found = {str(number): one for number, one in enumerate(claims)}
    for order in (found, dict(reversed(found.items()))):
        assert choose(order) == (None if member is None else str(member), chosen)


def test_last_number_of_a_term_ends_nothing() -> None:
    greatest = claim("a", A, TERM_MAX)
    assert choose({"1": greatest})[1].term == Term(TERM_MAX, 1)
    member, found = choose({"1": replace(greatest, address=None), "2": claim("b", B)})
    assert (member, found.term) == ("2", Term(1, 2))
    # From then on it counts again.
    assert choose({"1": claim("a", A, known=found.term), "2": claim("b", B, 1)})[1].term == Term(1, 2)


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.builds(
            Claim,
            st.sampled_from("ab"),
            st.sampled_from((A, B, None)),
            st.integers(0, 3),
            st.integers(0, TERM_MAX),
            st.builds(Term, st.integers(0, TERM_MAX), st.integers(0, 3)),
            st.just(b""),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_every_choice_can_be_told_and_is_a_member_that_can_be_reached(claims: dict[str, Claim]) -> None:
    member, found = choose(claims)
    assert 0 <= found.term.number <= TERM_MAX
    assert (member is None) == (found.address is None) == (not found.name)
    if member is not None:
        assert claims[member].bound
        assert found.term.number


def standing_in_1(at_ms: int) -> Standing:
    """A member that was chosen in term 1."""
    standing = Standing(TENURE_MS, LASTING_MS)
    standing.rule(ruling("a", A, 1), at_ms, mine=True)
    return standing


def test_tenure_ends_without_confirmation_and_begins_again_with_it() -> None:
    standing = standing_in_1(1000)
    standing.confirm(500)  # an earlier one takes nothing away
    assert standing.holds(1000 + TENURE_MS - 1)
    standing.confirm(3000)
    assert standing.holds(3000 + TENURE_MS - 1)
    assert not standing.holds(3000 + TENURE_MS)
    assert standing.number(3000 + TENURE_MS) == 0
    standing.confirm(9000)
    assert standing.holds(9000)


def test_ruling_of_the_same_term_confirms_nothing() -> None:
    standing = standing_in_1(0)
    standing.rule(ruling("a", A, 1), 4000, mine=True)
    assert not standing.holds(TENURE_MS)
    standing.rule(ruling("a", A, 1), 6000, mine=True)
    assert standing.holds(6000)


@pytest.mark.parametrize(("ruled", "holds"), [(ruling("b", B, 2), False), (ruling("a", A, 2), True)])
def test_another_term_ends_the_tenure_at_once(ruled: Ruling, holds: bool) -> None:
    standing = standing_in_1(0)
    standing.rule(ruled, 1000, mine=holds)
    assert standing.holds(1000) is holds
    assert standing.number(1000) == (2 if holds else 0)
    standing.confirm(1500)  # of a request that was under way
    assert standing.holds(1600) is holds


def chosen(before: Ruling | None = None, known: Term = NO_TERM) -> Standing:
    """A member that was chosen, after an earlier ruling, or where others know of a term."""
    standing = Standing(TENURE_MS, LASTING_MS)
    if before is not None:
        standing.rule(before, 0, mine=False)
        known = before.term
    standing.rule(ruling("a", A, 8, known), 1000, mine=True)
    assert standing.asks
    return standing


B_IN_7: Term = Term(7, RUNS["b"])


@pytest.mark.parametrize(
    ("lasting", "committed", "known", "learning_ms"),
    [
        (None, False, NO_TERM, 0),  # a new group
        (None, False, B_IN_7, LASTING_MS),  # the commit was deleted
        (None, True, NO_TERM, LASTING_MS),  # not signed
        (None, True, B_IN_7, LASTING_MS),
        (Lasting(0, B_IN_7), True, B_IN_7, 0),
        (Lasting(14_000, B_IN_7), True, B_IN_7, 14_000),
        (Lasting(60_000, B_IN_7), True, B_IN_7, 60_000),
        (Lasting(0, Term(6, 3)), True, B_IN_7, LASTING_MS),  # of an earlier term, sent again
        (Lasting(0, Term(7, 3)), True, B_IN_7, LASTING_MS),  # of another fleet's life
        (Lasting(0, Term(6, 3)), True, NO_TERM, 0),  # all were restarted
    ],
)
def test_a_holder_learns_for_as_long_as_leases_of_its_predecessor_may_last(
    lasting: Lasting | None, committed: bool, known: Term, learning_ms: int
) -> None:
    standing = chosen(known=known)
    believed = standing.succeed(lasting, committed=committed)
    assert believed == (lasting is not None and learning_ms == lasting.ms)
    assert not standing.asks
    assert standing.confirm(1500) == learning_ms


def test_a_holder_that_ends_and_begins_again_learns_of_its_own_leases() -> None:
    standing = chosen()
    standing.succeed(None, committed=False)
    assert standing.confirm(1500) == 0
    assert not standing.holds(1500 + TENURE_MS)
    assert standing.confirm(9000) == LASTING_MS


def test_a_commit_that_was_deleted_is_no_proof_that_there_was_no_holder() -> None:
    standing = chosen(before=ruling("b", B, 1))
    standing.succeed(None, committed=False)
    assert standing.confirm(1500) == LASTING_MS


def test_a_group_without_a_holder_before_has_no_leases() -> None:
    standing = chosen(before=Ruling("", None, NO_TERM))
    standing.succeed(None, committed=False)
    assert standing.confirm(1500) == 0


def test_a_member_that_was_chosen_again_before_it_was_confirmed_has_nothing_to_learn() -> None:
    standing = chosen()
    standing.rule(ruling("a", A, 8, Term(8, 1)), 1100, mine=True)
    standing.succeed(None, committed=False)
    assert standing.confirm(1500) == 0


def test_a_commit_of_its_own_that_was_deleted_is_no_proof_either() -> None:
    standing = chosen()
    standing.succeed(None, committed=False)
    standing.confirm(1500)
    standing.rule(ruling("a", A, 8, Term(8, 1)), 2000, mine=True)
    standing.succeed(None, committed=False)
    assert standing.confirm(2500) == LASTING_MS


def test_another_ruling_has_the_predecessor_asked_for_again() -> None:
    standing = chosen()
    standing.succeed(None, committed=False)
    standing.rule(ruling("b", B, 2), 1200, mine=False)
    asked_of_another = standing.asks
    standing.rule(ruling("a", A, 3), 1300, mine=True)
    assert (asked_of_another, standing.asks) == (False, True)
    standing.succeed(None, committed=False)
    assert standing.confirm(1400) == LASTING_MS


def test_a_member_that_was_chosen_again_before_it_was_confirmed_still_succeeds_the_same_holder() -> None:
    standing = chosen(known=B_IN_7)
    standing.rule(ruling("a", A, 8, Term(8, 1)), 1100, mine=True)
    standing.succeed(Lasting(0, Term(6, 3)), committed=True)
    assert standing.confirm(1500) == LASTING_MS


NONCE = b"n" * NONCE_BYTES
SIGNED, UNSIGNED = Statements(b"s" * 32, "__sluice"), Statements(b"", "__sluice")
OTHERS = (Statements(b"t" * 32, "__sluice"), Statements(b"s" * 32, "__other"), UNSIGNED)
CLAIM = Claim("a", A, 2**64 - 1, TERM_MAX, Term(7, 3), NONCE)
RULING = Ruling("a", A, Term(8, 5), Term(7, 3))
LASTING = Lasting(20_310, Term(8, 5))


@pytest.mark.parametrize("statements", [SIGNED, UNSIGNED])
def test_statements_come_back(statements: Statements) -> None:
    for claim in (CLAIM, replace(CLAIM, address=None, number=0, known=NO_TERM)):
        assert statements.read_claim(statements.write_claim(claim, "id-1"), "id-1") == claim
    for ruling, mine in ((RULING, True), (RULING, False), (Ruling("", None, NO_TERM, Term(1, 1)), False)):
        written = statements.write_ruling([(ruling, mine)], "id-1", NONCE)
        assert statements.read_ruling(written, "id-1", NONCE) == [(ruling, mine)]


def test_claim_is_for_the_member_that_has_made_it() -> None:
    assert SIGNED.read_claim(SIGNED.write_claim(CLAIM, "id-1"), "id-2") is None
    first = SIGNED.write_claim(CLAIM, "")
    assert SIGNED.read_claim(first, "id-2") == replace(CLAIM, bound=False)


def test_ruling_is_for_one_member_and_one_claim_of_it_and_is_no_claim() -> None:
    written = SIGNED.write_ruling([(RULING, True)], "id-1", NONCE)
    assert SIGNED.read_ruling(written, "id-2", NONCE) is None
    assert SIGNED.read_ruling(written, "id-1", b"m" * NONCE_BYTES) is None
    assert SIGNED.read_claim(written, "id-1") is None
    assert SIGNED.read_ruling(SIGNED.write_claim(CLAIM, "id-1"), "id-1", NONCE) is None


@pytest.mark.parametrize("other", OTHERS)
def test_statements_of_another_secret_or_group_or_of_none_are_no_statements(other: Statements) -> None:
    for writer, reader in ((SIGNED, other), (other, SIGNED)):
        assert reader.read_claim(writer.write_claim(CLAIM, "id-1"), "id-1") is None
        assert reader.read_ruling(writer.write_ruling([(RULING, True)], "id-1", NONCE), "id-1", NONCE) is None
        assert reader.read_lasting(writer.write_lasting(LASTING, "a")) is None


@given(st.data())
def test_any_changed_byte_makes_it_no_statement(data: st.DataObject) -> None:
    claim, ruling = SIGNED.write_claim(CLAIM, "id-1"), SIGNED.write_ruling([(RULING, False)], "id-1", NONCE)
    commit = SIGNED.write_lasting(LASTING, "a").encode()
    for said in (claim, ruling, commit):
        changed = bytearray(said)
        changed[data.draw(st.integers(0, len(said) - 1))] ^= data.draw(st.integers(1, 127))
        assert SIGNED.read_claim(bytes(changed), "id-1") is None
        assert SIGNED.read_ruling(bytes(changed), "id-1", NONCE) is None
        assert SIGNED.read_lasting(changed.decode("latin-1")) is None


@given(st.integers(0, 120_000), st.integers(0, TERM_MAX), st.integers(0, 2**64 - 1), st.text())
def test_what_a_holder_commits_comes_back(lasting_ms: int, number: int, run: int, name: str) -> None:
    lasting = Lasting(lasting_ms, Term(number, run))
    assert SIGNED.read_lasting(SIGNED.write_lasting(lasting, name)) == lasting
    assert UNSIGNED.read_lasting(UNSIGNED.write_lasting(lasting, name)) is None


@pytest.mark.parametrize("lasting", [Lasting(120_001, Term(1, 1)), Lasting(0, Term(TERM_MAX + 1, 1))])
def test_commit_of_what_cannot_be_is_not_believed(lasting: Lasting) -> None:
    assert SIGNED.read_lasting(SIGNED.write_lasting(lasting, "a")) is None


@given(st.text() | st.text().map("leases_ms=0 term=1 run=0000000000000001 holder=".__add__))
def test_any_commit_is_believed_only_with_a_signature(committed: str) -> None:
    assert SIGNED.read_lasting(committed) is None
    assert UNSIGNED.read_lasting(committed) is None


@given(
    st.binary(max_size=120) | st.binary(max_size=120).map(UNSIGNED.write_claim(CLAIM, "id-1")[:20].__add__)
)
def test_any_bytes_are_a_statement_or_none(data: bytes) -> None:
    assert SIGNED.read_claim(data, "id-1") is None
    assert SIGNED.read_ruling(data, "id-1", NONCE) is None
    claim = UNSIGNED.read_claim(data, "id-1")
    assert claim is None or UNSIGNED.read_claim(UNSIGNED.write_claim(claim, "id-1"), "id-1") == claim
    found = UNSIGNED.read_ruling(data, "id-1", NONCE)
    if found is not None:
        written = UNSIGNED.write_ruling(found, "id-1", NONCE)
        assert UNSIGNED.read_ruling(written, "id-1", NONCE) == found


# The holders of several parts.

MANY = 64


def claims_of(members: Iterable[int], held: Mapping[int, int] | None = None) -> dict[str, Claim]:
    """Claims of members with these runs.

    Args:
        held: of each part, the run of the present holder, in term 3.
    """
    found = {}
    for run in members:
        terms = [
            (3, Term(3, run)) if held is not None and held[part] == run else (0, NO_TERM)
            for part in range(MANY)
        ]
        (number, known), *more = terms
        address = Address(f"host-{run}", 19_070)
        found[f"id-{run}"] = Claim(f"m-{run}", address, run, number, known, NONCE, parts=tuple(more))
    return found


def holders_of(members: Iterable[int], held: Mapping[int, int] | None = None) -> dict[int, int]:
    """Of each part, the run of the member that is chosen."""
    found = choose_all(claims_of(members, held), MANY)
    assert all(holder == f"id-{ruling.term.run}" for holder, ruling in found)
    return {part: ruling.term.run for part, (_, ruling) in enumerate(found)}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 63, 64, 65, 100])
def test_parts_are_spread_evenly_over_the_members(count: int) -> None:
    counts = Counter(holders_of(range(1, count + 1)).values())
    assert max(counts.values()) == -(-MANY // count)


def test_holders_stay_and_their_terms_too_while_nothing_changes() -> None:
    held = holders_of(range(1, 8))
    found = choose_all(claims_of(range(1, 8), held), MANY)
    assert [ruling.term for _, ruling in found] == [Term(3, held[part]) for part in range(MANY)]


def test_member_that_joins_gets_parts_of_those_that_have_too_many_and_no_other_part_moves() -> None:
    held = holders_of(range(1, 8))  # 10 at most
    found = holders_of(range(1, 9), held)  # 8 at most
    moved = [part for part in range(MANY) if found[part] != held[part]]
    assert len(moved) == sum(max(0, count - 8) for count in Counter(held.values()).values())
    assert set(Counter(found.values()).values()) == {8}


def test_parts_of_a_member_that_leaves_go_to_the_others_in_the_next_term_and_no_other_part_moves() -> None:
    held = holders_of(range(1, 9))
    found = choose_all(claims_of(range(1, 8), held), MANY)
    for part, (_, ruling) in enumerate(found):
        gone = held[part] == 8
        assert (ruling.term.run == held[part]) is not gone
    again = choose_all(
        {
            member: replace(
                claim, parts=tuple((0, Term(3, 8)) for _ in claim.parts), number=0, known=Term(3, 8)
            )
            for member, claim in claims_of(range(1, 8)).items()
        },
        MANY,
    )
    assert {ruling.term.number for _, ruling in again} == {4}
    assert {ruling.before for _, ruling in again} == {Term(3, 8)}


def test_no_member_without_an_address_or_a_bound_claim_holds_a_part() -> None:
    claims = claims_of((1, 2, 3))
    claims["id-1"] = replace(claims["id-1"], bound=False)
    claims["id-2"] = replace(claims["id-2"], address=None)
    assert {holder for holder, _ in choose_all(claims, MANY)} == {"id-3"}
    del claims["id-3"]
    assert {(holder, ruling.name) for holder, ruling in choose_all(claims, MANY)} == {(None, "")}


@pytest.mark.parametrize("statements", [SIGNED, UNSIGNED])
def test_rulings_of_all_parts_come_back_and_a_hundred_members_fit_into_a_record_of_kafka(
    statements: Statements,
) -> None:
    members = claims_of(range(1, 101))
    found = choose_all(members, MANY)
    bytes_all = 0
    for member, claim in members.items():
        said = [(ruling, holder == member) for holder, ruling in found]
        written = statements.write_ruling(said, member, claim.nonce)
        assert statements.read_ruling(written, member, claim.nonce, MANY) == said
        assert statements.read_ruling(written, member, claim.nonce) is None
        bytes_all += len(written) + len(statements.write_claim(claim, member))
    assert bytes_all <= 900_000  # of 1,048,588, brokers' default: one record has all of a group's members


def test_commit_for_one_part_is_none_for_another() -> None:
    written = SIGNED.write_lasting(Lasting(20_310, Term(4, 255)), "gw-1", part=3)
    assert SIGNED.read_lasting(written, 3) == Lasting(20_310, Term(4, 255))
    assert SIGNED.read_lasting(written, 4) is None
    assert SIGNED.read_lasting(written) is None
