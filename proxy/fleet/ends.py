"""Finds out at once that a process of the fleet has ended, however it has: by two signs together.

    1. its side has closed the connection, or reset it: the kernel does so when a process ends, also by kill -9
    2. its port refuses connections, at the address from which that connection came: no process listens there; or
       another process of the fleet says that it has bound this port there

Neither a timeout is a sign, nor a connection that this side has closed. A process that is stopped, or a machine that is
suspended, keeps its port, and accepts. Since an address may be translated on the way, or a firewall may refuse, the
port has to have accepted once from here while the connection was open, and no other member may have the same.

What is assumed: nothing between the members closes a member's connection *and* begins to refuse its port while the
member runs. Without both signs a member is gone when its lease has ended. Workers have no port: they use no share
LIVE_MS after the end of their control process (`quotas.sharing.lessee`), which the lessor waits for.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal

from quotas.sharing.lease_values import LesseeId

Place = tuple[str, int]
"""An address and a port."""
Sign = Literal["refused", "replaced"]

# A process may still be ending when its connection is closed; and one that is started again may be slow.
PAUSES_SECONDS: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
_CONNECT_SECONDS_MAX: Final = 1.0
# Of a read or a write: the other side has closed the connection.
ENDED_BY_PEER: Final = (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError)


async def refuses(place: Place) -> bool | None:
    """Try to connect to a place; returns whether it refuses, None if it neither accepts nor refuses."""
    host, port = place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return None
    return False


def place_of(writer: asyncio.StreamWriter, port: str | None) -> Place | None:
    """Return the place of a port at the other side of a connection; None if it is not known."""
    peer = writer.get_extra_info("peername")
    if not isinstance(peer, tuple) or port is None or not port.isascii() or not port.isdigit():
        return None
    return (str(peer[0]), int(port)) if 0 < int(port[:6]) < 65536 else None


class Ends:
    """The members' ports, and which members have closed their connections.

    Args:
        ended: called once with each member that has ended, and the sign.
    """

    def __init__(self, ended: Callable[[LesseeId, Sign], object]) -> None:
        self._ended = ended
        self._places: dict[LesseeId, Place] = {}
        self._reached: set[LesseeId] = set()  # whose port has accepted
        self._closed: set[LesseeId] = set()
        self._tasks: dict[LesseeId, asyncio.Task[None]] = {}
        self._shared: set[Place] = set()  # of several members: addresses are translated

    def connected(self, lessee: LesseeId, place: Place | None) -> None:
        """Register a member's connection and where its port is; None if it has none, or that is not known."""
        if place is not None and self._places.get(lessee) == place and lessee not in self._closed:
            return
        self.forget(lessee)
        if place is None or place in self._shared:
            return
        for other in [other for other, its in self._places.items() if its == place]:
            closed, reached = other in self._closed, other in self._reached
            self.forget(other)
            if not closed:
                self._shared.add(place)
                return
            if reached:
                self._ended(other, "replaced")
        self._places[lessee] = place
        self._start(lessee, self._reach(lessee, place))

    def closed(self, lessee: LesseeId) -> None:
        """Begin to look whether a member has ended: its side has closed its connection."""
        place = self._places.get(lessee)
        if place is not None:
            self._closed.add(lessee)
            if lessee in self._reached:
                self._start(lessee, self._look(lessee, place))

    def forget(self, lessee: LesseeId) -> None:
        """Forget a member, so that its end is not looked for."""
        self._places.pop(lessee, None)
        self._reached.discard(lessee)
        self._closed.discard(lessee)
        task = self._tasks.pop(lessee, None)
        if task is not None:
            task.cancel()

    def keep(self, lessees: set[LesseeId]) -> None:
        """Forget all members but these."""
        for lessee in self._places.keys() - lessees:
            self.forget(lessee)

    def _start(self, lessee: LesseeId, work: Coroutine[Any, Any, None]) -> None:
        before = self._tasks.pop(lessee, None)
        if before is not None:
            before.cancel()
        task = self._tasks[lessee] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._done(lessee, done))

    def _done(self, lessee: LesseeId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(lessee) is task:
            del self._tasks[lessee]

    async def _reach(self, lessee: LesseeId, place: Place) -> None:
        """Find out whether the port accepts connections from here: only then does a refusal mean anything."""
        if await refuses(place) is False and lessee not in self._closed:
            self._reached.add(lessee)

    async def _look(self, lessee: LesseeId, place: Place) -> None:
        """Find out whether the port refuses by now; if so the member has ended."""
        for pause in PAUSES_SECONDS:
            await asyncio.sleep(pause)
            if await refuses(place):
                del self._tasks[lessee]  # this one, which goes on
                self.forget(lessee)
                self._ended(lessee, "refused")
                return
