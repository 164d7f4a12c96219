"""Frames of a connection between members of a fleet: length, signature, message.

    length u32 of what follows
    HMAC-SHA256; without a secret, with an empty key, as a checksum only
    the message

A connection begins with two frames of each side:

    hello   both sides at once: a nonce, with a checksum only
    proof   the member's, then the holder's: the same nonce, signed

The proof and all frames after it are signed with a key that depends on the secret and on both nonces; the signature
covers direction and number too. So a frame cannot be repeated, left out, sent back, or used on another connection, and
a proof cannot have been recorded. Frames are not encrypted; `[fleet.tls]` puts TLS around them.

Signatures are given to peers that have proven the secret, with one exception: one side has to begin, and that is the
member. So a process that connects to the holder's port gets nothing that depends on the secret, however often it asks;
one that stands at the holder's address gets a proof, from which it could find a secret by trial. The members'
statements in the group are such signatures too (`proxy.fleet.statements`), readable for every client of brokers without
an authorizer. The secret therefore has at least 32 bytes (`proxy.files.read_secret`), and with those of `sluice fleet
secret`, which are 256 random bits, trial is hopeless. Before the proofs each side reads only frames of a hello's size,
and a member sends no facts and no report.
"""

import asyncio
import hashlib
import hmac
import secrets
from typing import Final

from proxy.fleet.codec import (
    HELLO_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    Hello,
    MessageError,
    read,
    write,
)

SIGNATURE_BYTES: Final = 32
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake: no frame is that long
_FROM_HOLDER, _FROM_MEMBER = b"H", b"M"


class SignatureError(MessageError):
    """A frame is not signed with this process's secret."""

    def __init__(self) -> None:
        super().__init__("wrong signature: fleet.secret_file must be the same in all members")


class TlsMismatchError(MessageError):
    """One side speaks TLS, and the other does not."""

    def __init__(self) -> None:
        super().__init__("the peer speaks TLS, and this process does not: [fleet.tls] must be in all members")


class Frames:
    """Signs and verifies the frames of one connection; pure, except for the random nonce and `receive`.

    Args:
        secret: of the fleet; empty without one.
        holder: whether this side is the holder.
    """

    def __init__(self, secret: bytes, *, holder: bool) -> None:
        self._secret = secret
        self._holder = holder
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._key = b""
        self._sent = 0
        self._received = 0

    @property
    def greeted(self) -> bool:
        """Whether the hello of the other side has arrived."""
        return bool(self._key)

    @property
    def proven(self) -> bool:
        """Whether the other side has proven that it has the secret."""
        return self._received > 0

    @property
    def bytes_max(self) -> int:
        """The largest length of the next frame; small until the other side has proven that it has the secret."""
        return SIGNATURE_BYTES + (MESSAGE_BYTES_MAX if self.proven else HELLO_BYTES)

    def hello(self) -> bytes:
        """Return the first frame."""
        return _frame(b"", write(Hello(self._nonce)), b"")

    def proof(self) -> bytes:
        """Return the second frame; the holder's comes after the member's."""
        assert not self._sent, "the proof comes first"
        return self._signed(write(Hello(self._nonce)))

    def no_proof(self) -> bytes:
        """Return a second frame without a signature, for a member with another secret, which notices it by that."""
        return _frame(b"", write(Hello(self._nonce)), b"")

    def write(self, message: bytes) -> bytes:
        """Return the frame of a message."""
        assert self._sent, "the proof comes first"
        return self._signed(message)

    def open(self, frame: bytes) -> bytes:
        """Return the message of a frame, without its length, after the hello.

        Raises:
            SignatureError: it is not signed for this connection, direction and number.
        """
        place = (_FROM_MEMBER if self._holder else _FROM_HOLDER) + self._received.to_bytes(8)
        message = frame[SIGNATURE_BYTES:]
        if not hmac.compare_digest(frame[:SIGNATURE_BYTES], _digest(self._key, place + message)):
            raise SignatureError
        self._received += 1
        return message

    def greet(self, frame: bytes) -> None:
        """Take the hello of the other side.

        Raises:
            MessageError: it is not a hello; VersionError: of another version.
        """
        message = frame[SIGNATURE_BYTES:]
        hello = read(message)  # first, so that another version is reported as such
        if not isinstance(hello, Hello) or not hmac.compare_digest(
            frame[:SIGNATURE_BYTES], _digest(b"", message)
        ):
            raise MessageError("byte 5: a hello comes first")
        nonces = (self._nonce, hello.nonce) if self._holder else (hello.nonce, self._nonce)
        self._key = _digest(self._secret, b"sluice fleet" + b"".join(nonces))

    async def receive(self, reader: asyncio.StreamReader) -> bytes:
        """Read the next frame; return its message, b"" for the hello and the proof.

        Raises:
            MessageError: the frame is malformed, or not signed with this secret.
            OSError, asyncio.IncompleteReadError: the connection has ended.
        """
        head = await reader.readexactly(4)
        if not self._key and head.startswith(_TLS_RECORDS):
            raise TlsMismatchError
        length = int.from_bytes(head)
        if not SIGNATURE_BYTES < length <= self.bytes_max:
            raise MessageError(f"a frame of {length} bytes, above the maximum of {self.bytes_max}")
        frame = await reader.readexactly(length)
        if not self._key:
            self.greet(frame)
            return b""
        proven = self.proven
        message = self.open(frame)
        return message if proven else b""

    def _signed(self, message: bytes) -> bytes:
        assert self._key, "the hello comes first"
        assert self.proven or not self._holder, (
            "nothing is signed for a process that has not proven the secret"
        )
        place = (_FROM_HOLDER if self._holder else _FROM_MEMBER) + self._sent.to_bytes(8)
        self._sent += 1
        return _frame(self._key, message, place)


def _frame(key: bytes, message: bytes, place: bytes) -> bytes:
    signature = _digest(key, place + message)
    return (len(signature) + len(message)).to_bytes(4) + signature + message


def _digest(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)
