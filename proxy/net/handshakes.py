"""TLS handshakes on the event loop, one step of one handshake at a time, so that the loop is not blocked.

A step costs half a millisecond with a P-256 key and two with RSA 2048 (docs/benchmarks.md), and a restarted listener
receives hundreds at once. So steps wait in one queue; each turn of the loop takes TURN_MS of them at most, but at least
one: connected clients wait no longer than that. The caller limits the number of handshakes and their time. A step that
raises an unexpected exception ends only its own handshake.

Non-obvious:

- A client that fails in the handshake is closed softly. Closing a socket with unread bytes resets it, and a reset
  may overtake the alert that has the reason.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.system.clock import clock_ns
from proxy.system.stats import Stats

logger = logging.getLogger(__name__)

TURN_MS: Final = 2

Done = Callable[[], None]
Failed = Callable[[Exception], None]


class Handshakes:
    """Runs all TLS handshakes of the process step by step, for at most TURN_MS in one turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats) -> None:
        self._loop = loop
        self._stats = stats
        self._ready: deque[Handshake] = deque()
        self._scheduled = False

    def begin(self, sock: ssl.SSLSocket, side: str, done: Done, failed: Failed) -> "Handshake":
        """Begin a handshake; exactly one of the two callbacks is called, later, unless it is cancelled.

        Args:
            sock: connected and non-blocking, its handshake not begun.
            side: "client" or "broker", under which it is counted.
            done: called when the handshake has succeeded.
            failed: called with the error when the handshake, or `done`, has failed; one that is no OSError is a bug.
        """
        handshake = Handshake(self._loop, sock, side, done, failed, self.queue)
        self.queue(handshake)
        return handshake

    def queue(self, handshake: "Handshake") -> None:
        """Queue a handshake whose socket is ready for its next step."""
        self._ready.append(handshake)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        started_ns = before_ns = clock_ns()
        stats = self._stats
        while self._ready:
            handshake = self._ready.popleft()
            try:
                done = handshake.step()
            except Exception as error:  # noqa: BLE001 - the edge of a handshake: the others must continue
                done = False
                handshake.fail(error)
            now_ns = clock_ns()
            stats.handshake_us_total += (now_ns - before_ns) // 1000
            if done:
                stats.handshakes[handshake.side] += 1
            before_ns = now_ns
            if now_ns - started_ns > TURN_MS * 1_000_000:
                break
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)


@dataclass(slots=True, eq=False)
class Handshake:
    """One TLS handshake: waits until its socket is ready, then in the queue for its next step."""

    loop: asyncio.AbstractEventLoop
    sock: ssl.SSLSocket | None
    side: str
    done: Done
    failed: Failed
    queue: Callable[["Handshake"], None]
    _waits: Callable[[int], bool] | None = field(init=False, default=None)  # cancels the wait

    def cancel(self) -> None:
        """Cancel the handshake: no callback is called. The socket stays open; the caller closes it."""
        self._stop_waiting()
        self.sock = None

    def step(self) -> bool:
        """Continue as far as the socket allows; True if it has succeeded."""
        sock = self.sock
        if sock is None:
            return False
        loop = self.loop
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._waits = loop.remove_reader
            loop.add_reader(sock.fileno(), self._ready)
            return False
        except ssl.SSLWantWriteError:
            self._waits = loop.remove_writer
            loop.add_writer(sock.fileno(), self._ready)
            return False
        except OSError as error:
            self.sock = None
            self.failed(error)
            return False
        self.sock = None
        self.done()
        return True

    def fail(self, error: Exception) -> None:
        """End the handshake after an unexpected exception."""
        logger.error("internal error: TLS handshake aborted", exc_info=error)
        self.sock = None
        try:
            self.failed(error)
        except Exception:
            logger.exception("cannot end a failed TLS handshake")

    def _ready(self) -> None:
        self._stop_waiting()
        self.queue(self)

    def _stop_waiting(self) -> None:
        if self._waits is not None and self.sock is not None:
            self._waits(self.sock.fileno())
            self._waits = None
