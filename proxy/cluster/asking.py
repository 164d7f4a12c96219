"""One request and its answer on Sluice's own connection, one at a time."""

import asyncio
import struct
from typing import Final

from protocol.api import API_NAMES, flexible
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD

__all__ = ["CLIENT_ID", "CORRELATION_ID", "ask", "exchange"]

_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
CLIENT_ID: Final = b"sluice"
CORRELATION_ID: Final = 1


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    api_key: int,
    version: int,
    body: bytes,
    bytes_max: int = _ANSWER_BYTES_MAX,
) -> bytes:
    """Send a request and give its answer, of at most `bytes_max`, a whole frame with its length prefix.

    Raises:
        OSError, asyncio.IncompleteReadError: the broker is gone.
        WireError: what came back is no answer to this.
    """
    name = CLIENT_ID + b"\0" if flexible(api_key, version) else CLIENT_ID  # and a header without tags
    length = REQUEST_HEAD.size - 4 + len(name) + len(body)
    head = REQUEST_HEAD.pack(length, api_key, version, CORRELATION_ID, len(CLIENT_ID))
    return await exchange(reader, writer, head + name + body, bytes_max)


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    frame: bytes,
    bytes_max: int = _ANSWER_BYTES_MAX,
) -> bytes:
    """Send a whole request and give its answer, both with their length prefix.

    Raises:
        OSError, asyncio.IncompleteReadError: the broker is gone.
        WireError: what came back is no answer to this.
    """
    if writer.is_closing():  # reset while nobody read; uvloop has an error of its own for writing then
        raise ConnectionResetError("the broker has closed the connection")
    writer.write(frame)
    prefix = await reader.readexactly(4)
    (length,) = struct.unpack(">i", prefix)
    if not 4 <= length <= bytes_max:
        name = API_NAMES[int.from_bytes(frame[4:6], "big")]
        raise WireError(f"an answer of {length} bytes to {name}: no Kafka broker, or one that expects TLS")
    return prefix + await reader.readexactly(length)
