"""Frames of a connection between members of a fleet: length, signature, message.

    length u32 of what follows
    HMAC-SHA256; without a secret, with an empty key, as a checksum only
    the message

The first frame of each side is a hello, signed with the secret. All others are signed with a key that depends on the
secret and on both hellos; the signature covers direction and number too. So a frame cannot be repeated, left out, or
used on another connection. Frames are not encrypted; `[fleet.tls]` puts TLS around them. A holder reads large frames
only after a small one with a valid signature, the member's facts, since a hello alone may be a recorded one.
"""

import asyncio
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from proxy import files
from proxy.fleet.codec import (
    HELLO_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    Hello,
    MessageError,
    read,
    write,
)

__all__ = ["Frames", "SignatureError", "TlsMismatchError", "read_secret"]

SIGNATURE_BYTES: Final = 32
FIRST_BYTES_MAX: Final = 16 * 1024
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
        """Whether the hello of the other side has been verified."""
        return bool(self._key)

    @property
    def bytes_max(self) -> int:
        """The largest length of the next frame; small until a member's second frame proves that it has the secret."""
        if not self._key:
            return SIGNATURE_BYTES + HELLO_BYTES
        unproven = self._holder and not self._received
        return SIGNATURE_BYTES + (FIRST_BYTES_MAX if unproven else MESSAGE_BYTES_MAX)

    def hello(self) -> bytes:
        """Return the first frame."""
        return self._frame(self._secret, write(Hello(self._nonce)), b"")

    def write(self, message: bytes) -> bytes:
        """Return the frame of a message."""
        assert self._key, "the hello comes first"
        place = (_FROM_HOLDER if self._holder else _FROM_MEMBER) + self._sent.to_bytes(8)
        self._sent += 1
        return self._frame(self._key, message, place)

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
            MessageError: it is not a hello; VersionError: of another version; SignatureError: of another secret.
        """
        message = frame[SIGNATURE_BYTES:]
        hello = read(message)  # first, so that another version is reported as such
        if not isinstance(hello, Hello):
            raise MessageError("byte 5: a hello comes first")
        if not hmac.compare_digest(frame[:SIGNATURE_BYTES], _digest(self._secret, message)):
            raise SignatureError
        nonces = (self._nonce, hello.nonce) if self._holder else (hello.nonce, self._nonce)
        self._key = _digest(self._secret, b"sluice fleet" + b"".join(nonces))

    async def receive(self, reader: asyncio.StreamReader) -> bytes:
        """Read the next frame; return its message, b"" for the hello.

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
        if self._key:
            return self.open(frame)
        self.greet(frame)
        return b""

    def _frame(self, key: bytes, message: bytes, place: bytes) -> bytes:
        signature = _digest(key, place + message)
        return (len(signature) + len(message)).to_bytes(4) + signature + message


def _digest(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


async def read_secret(path: Path | None) -> bytes:
    """Read the secret of the fleet, once for each connection; empty without a file.

    Raises:
        OSError: the file cannot be read, or is empty.
    """
    if path is None:
        return b""
    return await asyncio.to_thread(files.read_secret, path, "fleet.secret_file")
