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
from dataclasses import dataclass
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
    """Try to connect; True if the port refuses connections, False if it accepts, None after any other error."""
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
    """Return the address of the other side of a connection, with the port on which that side says it listens.

    Args:
        port: the port as text, as the other side has stated it; None if it has not.

    Returns: None if the address or the port is not known or invalid.
    """
    peer = writer.get_extra_info("peername")
    if not isinstance(peer, tuple) or port is None or not port.isascii() or not port.isdigit():
        return None
    return (str(peer[0]), int(port)) if 0 < int(port[:6]) < 65536 else None


@dataclass
class _Member:
    """A member that has a port.

    Attributes:
        reached: whether its port has accepted a connection from here.
        closed: whether its side has closed its connection.
        task: looks at its port.
    """

    place: Place
    reached: bool = False
    closed: bool = False
    task: asyncio.Task[None] | None = None

    def look(self, work: Coroutine[Any, Any, None] | None) -> None:
        """Cancel the task that checks the port, and start `work` in its place; None starts nothing."""
        if self.task is not None:
            self.task.cancel()
        self.task = None if work is None else asyncio.get_running_loop().create_task(work)


class Ends:
    """Detects that members' processes have ended, by their closed connections and their ports.

    Args:
        ended: called once for each member that has ended, with the sign of it: "refused" if its port refuses
            connections, "replaced" if another process says that it has bound this port.
    """

    def __init__(self, ended: Callable[[LesseeId, Sign], object]) -> None:
        self._ended = ended
        self._members: dict[LesseeId, _Member] = {}
        self._shared: set[Place] = set()  # of several members: addresses are translated

    def connected(self, lessee: LesseeId, place: Place | None) -> None:
        """Register the connection of a member, and the address of its port; None if that is not known."""
        known = self._members.get(lessee)
        if known is not None and known.place == place and not known.closed:
            return
        self.forget(lessee)
        if place is None or place in self._shared:
            return
        for other, its in [one for one in self._members.items() if one[1].place == place]:
            self.forget(other)
            if not its.closed:
                self._shared.add(place)
                return
            if its.reached:
                self._ended(other, "replaced")
        member = self._members[lessee] = _Member(place)
        member.look(self._reach(member))

    def closed(self, lessee: LesseeId) -> None:
        """Start to check whether a member has ended, since its side has closed its connection."""
        member = self._members.get(lessee)
        if member is not None:
            member.closed = True
            if member.reached:
                member.look(self._look(lessee, member))

    def forget(self, lessee: LesseeId) -> None:
        """Remove a member, and no longer check whether its process has ended."""
        member = self._members.pop(lessee, None)
        if member is not None:
            member.look(None)

    def keep(self, lessees: set[LesseeId]) -> None:
        """Remove all members except these."""
        for lessee in self._members.keys() - lessees:
            self.forget(lessee)

    async def _reach(self, member: _Member) -> None:
        """Find out whether the port accepts connections from here: only then does a refusal mean anything."""
        if await refuses(member.place) is False and not member.closed:
            member.reached = True

    async def _look(self, lessee: LesseeId, member: _Member) -> None:
        """Find out whether the port refuses by now; if so the member has ended."""
        for pause in PAUSES_SECONDS:
            await asyncio.sleep(pause)
            if await refuses(member.place):
                member.task = None  # this one, which goes on
                self.forget(lessee)
                self._ended(lessee, "refused")
                return
