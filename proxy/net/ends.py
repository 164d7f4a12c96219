"""How a connection ends: the name of a socket's failure, and what a client has sent that is not read yet."""

import fcntl
import ssl
import struct
import termios
from typing import Final

from proxy.net.stream import Stream

__all__ = ["QUIET_CAUSES", "cause_of", "unread_bytes"]

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
