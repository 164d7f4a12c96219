"""The state that all connections of the process share: loop, read buffer, pipes, counters, quota engine."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from protocol.messages.fetch_session import SessionTable
from proxy.channel import Forward, Question, SharedResponse, Tap
from proxy.config import LimitOptions
from proxy.net.by_address import ByAddress
from proxy.net.dials import Dials
from proxy.net.handshakes import Handshakes
from proxy.net.kept import Ledger
from proxy.net.pipes import Pipes
from proxy.net.rdhup import Hangups
from proxy.net.tls import BrokerTls
from proxy.net.waiting_room import WaitingRoom
from proxy.stats import Stats
from proxy.worker import Worker
from quotas.engine import Engine
from quotas.throttles.connections import ConnectionRates

# The most bytes of one read: batches are powers of two, and one of 64 KiB fits with its request's other fields.
READ_BYTES_MAX: Final = 68 * 1024


# The divisor of the budget for kept bytes that gives the most that fetch sessions may take.
_SESSIONS_SHARE: Final = 8


Outcome = bytes | bytearray | SharedResponse | Forward | Exception
OutcomeCallback = Callable[[Outcome], None]
Withdraw = Callable[[], None]
"""Withdraws a request that has not begun; no effect later."""
Ask = Callable[[Question, OutcomeCallback], Withdraw]
"""Starts work on a question: the callback is called later, on the loop, with the response's frame, a request to send to
the broker first, or the reason why there is neither."""


def no_api(_question: Question, _done: OutcomeCallback) -> Withdraw:
    """The default of `Shared.ask`, until the application replaces it."""
    raise AssertionError("a listener has an API of its own, and the application has not set it")


class Arriving(Protocol):
    """An arriving connection."""

    def close(self) -> None:
        """Stop it."""

    def displace(self) -> None:
        """Stop it in favor of another address."""


class Taps(Protocol):
    """Decides whether a connection is captured."""

    def tap(self, ip: str, listener: str) -> Tap | None:
        """Return the tap of a connection; None if its requests are not captured."""


class Shared:
    """One object per process. The read buffer is used within one callback and never kept.

    Attributes:
        ask: runs the questions that a channel cannot respond to at once.
        broker_tls: TLS towards brokers; None for plaintext.
        dials: the brokers that cannot be connected to.
        kept: the ledger of kept bytes.
        recorder: takes captured rows; None without capture.
        arrivals: connections whose PROXY header or TLS handshake is not complete.
        worker: parses large frames in a thread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engine: Engine, limits: LimitOptions, stats: Stats
    ) -> None:
        self.loop = loop
        self.engine = engine
        self.limits = limits
        self.stats = stats
        self.sessions = SessionTable(limits.sessions_max, limits.kept_bytes_max // _SESSIONS_SHARE)
        self.kept = Ledger(
            limits.kept_bytes_max,
            limits.kept_bytes_per_connection_max,
            limits.kept_bytes_per_address_max,
            self._tables_bytes,
        )
        stats.kept_bytes = lambda: self.kept.total
        self.pipes = Pipes(limits.pipes_max, stats)
        self.hangups = Hangups(loop)
        self.dials = Dials()
        self.ask: Ask = no_api
        self.handshakes = Handshakes(loop, stats)
        self.worker = Worker(loop)
        self.broker_tls: BrokerTls | None = None
        self.recorder: Taps | None = None
        self.arrivals: ByAddress[Arriving] = ByAddress()
        self.connection_rates = ConnectionRates(engine)
        self.waiting_room = WaitingRoom(loop, stats)
        self.buffer = bytearray(READ_BYTES_MAX)
        self.view = memoryview(self.buffer)  # a view of the buffer, for the sockets

    def _tables_bytes(self) -> int:
        """The bytes kept in tables of the process, for peers that are connected or not."""
        return self.sessions.kept_bytes + self.engine.kept_bytes + self.connection_rates.kept_bytes

    def close(self) -> None:
        """Release the resources of the process."""
        for arrival in list(self.arrivals):
            arrival.close()
        self.waiting_room.close()
        self.worker.close()
        self.hangups.close()
        self.pipes.close()
