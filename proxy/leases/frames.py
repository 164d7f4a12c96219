"""A message on a connection: its length, a signature, itself.

    length u32 of what follows, at most FRAME_BYTES_MAX
    HMAC-SHA256 of the message, keyed with the shared secret; without a secret, with an empty key, as a checksum only

A response has the run and the number of its request, and a number is never used twice: a signed message cannot be
replayed. Messages are not encrypted: rates and broker ids are not secret.
"""

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Final

from proxy import files
from proxy.leases.messages import MESSAGE_BYTES_MAX, MessageError

__all__ = ["FRAME_BYTES_MAX", "read_frame", "read_secret", "write_frame"]

_SIGNATURE_BYTES: Final = 32
FRAME_BYTES_MAX: Final = _SIGNATURE_BYTES + MESSAGE_BYTES_MAX


def write_frame(message: bytes, secret: bytes) -> bytes:
    """Return the frame of a message: length, signature, message."""
    signature = hmac.digest(secret, message, hashlib.sha256)
    return (len(signature) + len(message)).to_bytes(4) + signature + message


async def read_frame(reader: asyncio.StreamReader, secret: bytes) -> bytes:
    """Read the next message.

    Raises:
        MessageError: the frame is malformed, or not signed with this secret.
        OSError, asyncio.IncompleteReadError: the connection has ended.
    """
    length = int.from_bytes(await reader.readexactly(4))
    if not _SIGNATURE_BYTES < length <= FRAME_BYTES_MAX:
        raise MessageError(f"a message of {length} bytes, above the maximum of {FRAME_BYTES_MAX}")
    frame = await reader.readexactly(length)
    message = frame[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(frame[:_SIGNATURE_BYTES], hmac.digest(secret, message, hashlib.sha256)):
        raise MessageError("wrong signature: leases.secret_file must be the same in all processes")
    return message


async def read_secret(path: Path | None) -> bytes:
    """Read the shared secret, for every connection again; without a file there is none.

    Raises:
        OSError: the file cannot be read, or is empty.
    """
    if path is None:
        return b""
    return await asyncio.to_thread(files.read_secret, path, "leases.secret_file")
