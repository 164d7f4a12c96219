"""The client's side of SCRAM (RFC 5802) as Kafka speaks it: three messages, and a broker that has to prove itself too.

Without channel binding, without SASLprep (Kafka does neither), without extensions. Pure but for the nonce, which the
caller brings; it keeps the password only as long as the object lives.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final

__all__ = ["HASHES", "Scram", "ScramError"]

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Kafka's own clients take no fewer; nobody configures more, and each one costs time.
_ITERATIONS_MIN: Final = 4096
_ITERATIONS_MAX: Final = 1_000_000

_CHALLENGE: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?")


class ScramError(Exception):
    """The broker's message is not SCRAM, or shows that it does not know the password."""


class Scram:
    """One exchange.

    Args:
        mechanism: a key of HASHES.
        nonce: random and printable, new for every exchange.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Give the client's first message."""
        return b"n,," + self._first_bare.encode()

    def final(self, challenge: bytes) -> bytes:
        """Answer the server's first message with the proof. Takes milliseconds: many rounds of hashing.

        Raises:
            ScramError: it is no such message, or was made for another exchange.
        """
        try:
            text = challenge.decode()
            found = _CHALLENGE.fullmatch(text)
            if found is None:
                raise ScramError("the broker's first SCRAM message is malformed")
            nonce, salt, iterations = found[1], b64decode(found[2], validate=True), int(found[3])
        except (UnicodeDecodeError, Base64Error):
            raise ScramError("the broker's first SCRAM message is malformed") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the broker's nonce does not continue ours")
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise ScramError(f"{iterations} iterations, not {_ITERATIONS_MIN} to {_ITERATIONS_MAX}")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        """Check the server's signature.

        Raises:
            ScramError: it has none, or another one: this broker does not know the password.
        """
        expected = b"v=" + b64encode(self._signature)
        if not hmac.compare_digest(final.split(b",", 1)[0], expected):
            raise ScramError("the broker did not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)
