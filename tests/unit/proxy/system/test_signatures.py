"""proxy.system.signatures: what a signature covers, and what makes it invalid."""

import pytest

from proxy.system.signatures import SIGNATURE_BYTES, Signer

SECRET = bytes(range(32))


def test_signature_has_its_fixed_size_and_is_the_same_each_time() -> None:
    signer = Signer(SECRET, "claim")
    assert len(signer.sign(b"a")) == SIGNATURE_BYTES
    assert signer.sign(b"a") == Signer(SECRET, "claim").sign(b"a")


@pytest.mark.parametrize(
    "parts", [(b"ab", b"c"), (b"a", b"bc", b""), (b"a", b""), (b"a", None), (b"a",), (b"b", b"bc"), ()]
)
def test_signature_is_invalid_for_other_parts(parts: tuple[bytes | None, ...]) -> None:
    signer = Signer(SECRET, "claim")
    signature = signer.sign(b"a", b"bc")
    assert signer.verifies(signature, b"a", b"bc")
    assert not signer.verifies(signature, *parts)


def test_signature_is_invalid_for_another_use_or_secret_or_when_cut() -> None:
    signature = Signer(SECRET, "claim").sign(b"a")
    assert not Signer(SECRET, "ruling").verifies(signature, b"a")
    assert not Signer(SECRET[::-1], "claim").verifies(signature, b"a")
    assert not Signer(SECRET, "claim").verifies(signature[:-1], b"a")
