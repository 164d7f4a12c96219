"""proxy.fleet.election: what is signed, for whom, and what is not believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import Address
from proxy.fleet.election import NO_TERM, NONCE_BYTES, TERM_MAX, Claim, Lasting, Ruling, Statements, Term

A = Address("gw-a", 19070)
NONCE = b"n" * NONCE_BYTES
SIGNED, UNSIGNED = Statements(b"s" * 32, "__sluice"), Statements(b"", "__sluice")
OTHERS = (Statements(b"t" * 32, "__sluice"), Statements(b"s" * 32, "__other"), UNSIGNED)
CLAIM = Claim("a", A, 2**64 - 1, TERM_MAX, Term(7, 3), NONCE)
RULING = Ruling("a", A, Term(8, 5), Term(7, 3))
LASTING = Lasting(20_310, Term(8, 5))


@pytest.mark.parametrize("statements", [SIGNED, UNSIGNED])
def test_statements_come_back(statements: Statements) -> None:
    for claim in (CLAIM, CLAIM._replace(address=None, number=0, known=NO_TERM)):
        assert statements.read_claim(statements.write_claim(claim, "id-1"), "id-1") == claim
    for ruling, mine in ((RULING, True), (RULING, False), (Ruling("", None, NO_TERM, Term(1, 1)), False)):
        written = statements.write_ruling(ruling, "id-1", NONCE, mine=mine)
        assert statements.read_ruling(written, "id-1", NONCE) == (ruling, mine)


def test_claim_is_for_the_member_that_has_made_it() -> None:
    written = SIGNED.write_claim(CLAIM, "id-1")
    assert SIGNED.read_claim(written, "id-1") == CLAIM
    assert SIGNED.read_claim(written, "id-2") is None
    first = SIGNED.write_claim(CLAIM, "")
    assert SIGNED.read_claim(first, "id-2") == CLAIM._replace(bound=False)


def test_ruling_is_for_one_member_and_one_claim_of_it() -> None:
    written = SIGNED.write_ruling(RULING, "id-1", NONCE, mine=True)
    assert SIGNED.read_ruling(written, "id-2", NONCE) is None
    assert SIGNED.read_ruling(written, "id-1", b"m" * NONCE_BYTES) is None


@pytest.mark.parametrize("other", OTHERS)
def test_statements_of_another_secret_or_group_or_of_none_are_no_statements(other: Statements) -> None:
    for writer, reader in ((SIGNED, other), (other, SIGNED)):
        assert reader.read_claim(writer.write_claim(CLAIM, "id-1"), "id-1") is None
        assert (
            reader.read_ruling(writer.write_ruling(RULING, "id-1", NONCE, mine=True), "id-1", NONCE) is None
        )
        assert reader.read_lasting(writer.write_lasting(LASTING, "a")) is None


@given(st.data())
def test_any_changed_byte_makes_it_no_statement(data: st.DataObject) -> None:
    claim, ruling = SIGNED.write_claim(CLAIM, "id-1"), SIGNED.write_ruling(RULING, "id-1", NONCE, mine=False)
    commit = SIGNED.write_lasting(LASTING, "a").encode()
    for said in (claim, ruling, commit):
        changed = bytearray(said)
        changed[data.draw(st.integers(0, len(said) - 1))] ^= data.draw(st.integers(1, 127))
        assert SIGNED.read_claim(bytes(changed), "id-1") is None
        assert SIGNED.read_ruling(bytes(changed), "id-1", NONCE) is None
        assert SIGNED.read_lasting(changed.decode("latin-1")) is None


def test_one_kind_of_statement_is_never_another() -> None:
    ruling = SIGNED.write_ruling(RULING, "id-1", NONCE, mine=True)
    claim = SIGNED.write_claim(CLAIM, "id-1")
    assert SIGNED.read_claim(ruling, "id-1") is None
    assert SIGNED.read_ruling(claim, "id-1", NONCE) is None


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


@given(st.binary(max_size=120) | st.binary(max_size=120).map(b"\x02".__add__))
def test_any_bytes_are_a_statement_or_none(data: bytes) -> None:
    assert SIGNED.read_claim(data, "id-1") is None
    assert SIGNED.read_ruling(data, "id-1", NONCE) is None
    claim = UNSIGNED.read_claim(data, "id-1")
    assert claim is None or UNSIGNED.read_claim(UNSIGNED.write_claim(claim, "id-1"), "id-1") == claim
    found = UNSIGNED.read_ruling(data, "id-1", NONCE)
    if found is not None:
        written = UNSIGNED.write_ruling(found[0], "id-1", NONCE, mine=found[1])
        assert UNSIGNED.read_ruling(written, "id-1", NONCE) == found
