"""Signatures of what Sluice keeps in Kafka, where others may write: HMAC-SHA256 with the fleet's secret.

Each use has a key of its own, derived from the secret and the name of the use, so that what is signed for one use is
never valid for another. Parts are joined with their lengths, so that bytes cannot move from one part into the next; a
part that is missing (the value of a tombstone) differs from an empty one. A signature does not say when it was made: a
use that must not accept an old record again signs a time or a number with it.
"""

import hashlib
import hmac
from struct import Struct
from typing import Final

SIGNATURE_BYTES: Final = 32
_LENGTH: Final = Struct(">q")
_MISSING: Final = _LENGTH.pack(-1)


class Signer:
    """Signs and verifies bytes of one kind, with a key derived from the fleet's secret.

    Args:
        secret: the fleet's secret; not empty.
        use: the kind, such as "quota record"; a signature of another kind is not valid.

    >>> signer = Signer(b"x" * 32, "quota record")
    >>> signature = signer.sign(b"key", None)
    >>> signer.verifies(signature, b"key", None), signer.verifies(signature, b"key", b"")
    (True, False)
    """

    def __init__(self, secret: bytes, use: str) -> None:
        assert secret, "without a secret nothing is signed"
        self._key = hmac.digest(secret, b"sluice: " + use.encode(), hashlib.sha256)

    def sign(self, *parts: bytes | None) -> bytes:
        """Return the signature (SIGNATURE_BYTES) of these parts, in this order; None and b"" are different parts."""
        joined = b"".join(_MISSING if part is None else _LENGTH.pack(len(part)) + part for part in parts)
        return hmac.digest(self._key, joined, hashlib.sha256)

    def verifies(self, signature: bytes, *parts: bytes | None) -> bool:
        """Whether `signature` is that of these parts, in this order."""
        return hmac.compare_digest(signature, self.sign(*parts))
