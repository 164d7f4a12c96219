"""One request and its answer on Sluice's own connection, one at a time."""

import asyncio
import struct
from collections.abc import Mapping
from typing import Final

from protocol.api import (
    ALTER_PARTITION_REASSIGNMENTS,
    API_NAMES,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    LIST_PARTITION_REASSIGNMENTS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    flexible,
)
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD
from protocol.messages.describe_configs import DESCRIBE_CONFIGS

__all__ = ["ANSWER_BYTES_MAX", "CLIENT_ID", "CORRELATION_ID", "ask", "exchange"]

_MIB: Final = 1024 * 1024
# Of what Sluice asks, by API: hundreds of topics at a time, all reassignments, all quotas, a broker's replicas.
ANSWER_BYTES_MAX: Final[Mapping[int, int]] = {
    API_VERSIONS: _MIB // 16,
    SASL_HANDSHAKE: _MIB // 16,
    SASL_AUTHENTICATE: _MIB // 2,
    DESCRIBE_CLUSTER: _MIB,
    ALTER_PARTITION_REASSIGNMENTS: 4 * _MIB,
    DESCRIBE_CONFIGS: 8 * _MIB,
    LIST_PARTITION_REASSIGNMENTS: 8 * _MIB,
}
_ANSWER_BYTES_MAX: Final = 16 * _MIB  # of all others
CLIENT_ID: Final = b"sluice"
CORRELATION_ID: Final = 1


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    api_key: int,
    version: int,
    body: bytes,
    bytes_max: int | None = None,
) -> bytes:
    """Send a request and give its answer, a whole frame with its length prefix.

    Args:
        bytes_max: how long it may be; None for what this API's may.

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
    bytes_max: int | None = None,
) -> bytes:
    """Send a whole request and give its answer, both with their length prefix.

    Raises:
        OSError, asyncio.IncompleteReadError: the broker is gone.
        WireError: what came back is no answer to this.
    """
    if writer.is_closing():  # reset while nobody read; uvloop has an error of its own for writing then
        raise ConnectionResetError("the broker closed the connection")
    writer.write(frame)
    prefix = await reader.readexactly(4)
    (length,) = struct.unpack(">i", prefix)
    api_key = int.from_bytes(frame[4:6], "big")
    if not 4 <= length <= (bytes_max or ANSWER_BYTES_MAX.get(api_key, _ANSWER_BYTES_MAX)):
        name = API_NAMES[api_key]
        raise WireError(
            f"a response of {length} bytes to {name}: not a Kafka broker, or one that expects TLS"
        )
    return prefix + await reader.readexactly(length)
