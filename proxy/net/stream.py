"""The socket methods that pumps and connections use; implemented by plain and by TLS sockets."""

from typing import Protocol

Buffer = memoryview | bytes | bytearray


class Stream(Protocol):
    """A connected, non-blocking socket."""

    def fileno(self) -> int:
        """Return the descriptor, for waiting."""

    def recv_into(self, buffer: memoryview, nbytes: int, /) -> int:
        """Read; 0 at the end of the stream, BlockingIOError if no data is available."""

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Write as much as is accepted; BlockingIOError if nothing is."""

    def setsockopt(self, level: int, optname: int, value: int, /) -> None:
        """Set an option of the socket."""

    def shutdown(self, how: int, /) -> None:
        """Shut down one direction."""

    def detach(self) -> int:
        """Return the descriptor and give up ownership: the caller closes it."""

    def close(self) -> None:
        """Close both directions."""
