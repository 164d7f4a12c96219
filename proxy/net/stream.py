"""What pumps and connections use of a socket: a plain one has it all, and so has one with TLS."""

from typing import Protocol

__all__ = ["Stream"]

Buffer = memoryview | bytes | bytearray


class Stream(Protocol):
    """A connected, non-blocking socket."""

    def fileno(self) -> int:
        """Give the descriptor, to wait on."""

    def recv_into(self, buffer: memoryview, nbytes: int, /) -> int:
        """Read; 0 at the end, BlockingIOError where nothing is there."""

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Write as much as is taken; BlockingIOError where nothing is."""

    def setsockopt(self, level: int, optname: int, value: int, /) -> None:
        """Set an option of the socket."""

    def shutdown(self, how: int, /) -> None:
        """End one direction."""

    def detach(self) -> int:
        """Give the descriptor away: the caller closes it."""

    def close(self) -> None:
        """End both."""
