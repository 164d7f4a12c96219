"""The end of a connection: names a socket's failure, counts unread bytes, and frees a channel's memory."""

import asyncio
import fcntl
import logging
import ssl
import struct
import termios
from collections.abc import Iterator
from typing import Final

from protocol.errors import WireError
from proxy.channel import PeerError
from proxy.net.stream import Stream

logger = logging.getLogger(__name__)

# The ordinary ends: not counted as errors and not logged.
QUIET_CAUSES: Final = frozenset(("client_closed", "broker_closed", "drained", "idle"))


def cause_of(peer: str, error: OSError) -> str:
    """Return the name of a socket's failure; a broken pipe is a peer that closed during a write."""
    if isinstance(error, ssl.SSLError):
        return f"{peer}_tls"
    if isinstance(error, BrokenPipeError):
        return f"{peer}_closed"
    return f"{peer}_reset" if isinstance(error, ConnectionResetError) else f"{peer}_socket"


def failure_of(error: Exception, peer: str) -> tuple[str, str]:
    """Return the cause under which a failed connection is counted, and a detail for its log line.

    Args:
        peer: "client" or "broker": the socket that has failed, if it is an error of a socket.
    """
    if isinstance(error, PeerError):
        return error.cause, error.detail
    if isinstance(error, WireError):
        return "malformed", str(error)
    if isinstance(error, OSError):
        return cause_of(peer, error), str(error)
    logger.error("internal error: connection closed", exc_info=error)
    return "internal", type(error).__name__


def unread_bytes(sock: Stream) -> int:
    """Return the number of bytes in the socket that are not read yet."""
    buffer = fcntl.ioctl(sock.fileno(), termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", buffer)[0])


def free(loop: asyncio.AbstractEventLoop, rest: Iterator[None]) -> None:
    """Free a channel's memory: one portion now, each further one in a turn of its own."""
    for _ in rest:
        loop.call_soon(free, loop, rest)
        return
