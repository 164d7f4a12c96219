"""How a connection ends: the name of a socket's failure, what a client has sent that is not read yet, and what is freed
when it is over.
"""

import asyncio
import fcntl
import ssl
import struct
import termios
from collections.abc import Iterator
from typing import Final

from proxy.net.stream import Stream

__all__ = ["QUIET_CAUSES", "cause_of", "free", "unread_bytes"]

# The ordinary ends: neither counted as errors nor logged.
QUIET_CAUSES: Final = frozenset(("client_closed", "broker_closed", "drained", "idle"))


def cause_of(peer: str, error: OSError) -> str:
    """Name how a socket failed; a broken pipe is a peer that closed while something was on its way to it."""
    if isinstance(error, ssl.SSLError):
        return f"{peer}_tls"
    if isinstance(error, BrokenPipeError):
        return f"{peer}_closed"
    return f"{peer}_reset" if isinstance(error, ConnectionResetError) else f"{peer}_socket"


def unread_bytes(sock: Stream) -> int:
    """Count what waits in the socket to be read."""
    buffer = fcntl.ioctl(sock.fileno(), termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", buffer)[0])


def free(loop: asyncio.AbstractEventLoop, rest: Iterator[None]) -> None:
    """Free what a channel knew: a portion now, and each further one in a turn of the loop of its own."""
    for _ in rest:
        loop.call_soon(free, loop, rest)
        return
