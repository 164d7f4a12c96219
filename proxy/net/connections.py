"""All connections of the process: operations on all of them, and the choice of one to close if there are too many.

Connections are visited in portions, and other work runs in between. A connection that has ended in between is skipped;
if one raises an exception, only that one is closed.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from proxy.net.arrival import Arrival
from proxy.net.by_address import ByAddress
from proxy.net.connection import Connection
from proxy.net.pump import Pump
from proxy.net.shared import Arriving
from proxy.system.clock import now_ms

_PORTION: Final = 200  # connections visited in one turn of the loop
_DRAIN_GAP_MS: Final = 500  # clients connect again in less
_LOOKED_AT_MAX: Final = 1000  # connections of one address among which the longest idle one is searched

logger = logging.getLogger(__name__)


class Connections(ByAddress[Connection]):
    """All connections, by client address."""

    async def sweep(self) -> None:
        """Close connections that are idle or slow for too long."""
        now = now_ms()
        await self._visit(lambda connection: connection.sweep(now))

    async def reconsider(self) -> None:
        """Apply changed quotas or switched enforcement to waiting connections."""
        await self._visit(lambda connection: connection.reconsider())

    def drain_times(self, now: int, spread_ms: int) -> dict[Connection, int]:
        """Return when each connection begins its shutdown, in ms: those of one address one after the other.

        So a client does not lose all of its connections at once, which some take for the loss of the whole cluster, and
        the processes that take over do not get all of them at once. The order is random, since connections of one
        client are often next to each other.

        Args:
            spread_ms: the last one of an address begins within this time; of a few earlier.
        """
        times = {}
        for items in self._items.values():
            gap_ms, phase = min(_DRAIN_GAP_MS, spread_ms / len(items)), random.random()
            for index, connection in enumerate(random.sample(list(items), len(items))):
                times[connection] = now + int((index + phase) * gap_ms)
        return times

    async def drain(self, times: Mapping[Connection, int]) -> None:
        """Let each connection whose time has come continue its shutdown (`Connection.drain`).

        Args:
            times: `drain_times`; a connection that is not in it has come since, and begins at once.
        """
        now = now_ms()
        await self._visit(lambda connection: times.get(connection, 0) <= now and connection.drain(now))

    async def close(self, cause: str) -> None:
        """Close all connections; `cause` is the label under which they are counted."""
        await self._visit(lambda connection: connection.close(cause))

    async def _visit(self, act: Callable[[Connection], object]) -> None:
        for index, connection in enumerate(list(self)):
            if not connection.closed:
                self._act(connection, act)
            if index % _PORTION == _PORTION - 1:
                await asyncio.sleep(0)

    def _act(self, connection: Connection, act: Callable[[Connection], object]) -> None:
        try:
            act(connection)
        except Exception as error:  # noqa: BLE001 - the edge of a connection: the others continue
            try:
                connection.failed(connection.requests, error)
            except Exception:
                logger.exception("cannot close a failed connection")
                self.discard(connection)


def make_room(connections: Connections, arrivals: ByAddress[Arriving], host: str, *, to_arrive: bool) -> bool:
    """Make room for a new connection by closing one of the address with the most: the longest idle, or an arriving one.

    Args:
        host: the host of the new connection; its own address must have fewer connections.
        to_arrive: True if the limit of arriving sockets is reached, so one of these is closed; False if that of
            connections is reached, so either kind may be closed.

    Returns: False if no connection may be closed for it.
    """
    if to_arrive or arrivals.largest > connections.largest:
        if not arrivals.can_displace_for(host):
            return False
        (oldest,) = arrivals.of_largest(1)
        oldest.displace()
        return True
    if not connections.can_displace_for(host):
        return False
    idlest = min(connections.of_largest(_LOOKED_AT_MAX), key=lambda connection: connection.active_ms)
    problem = f"limits.connections_max is reached, and its address has {connections.largest} connections"
    idlest.close("address_share", problem)
    return True


def end_owner(error: BaseException) -> None:
    """Close the connection whose callback has raised this error, if there is one."""
    found = owner(error)
    if isinstance(found, Connection):
        found.close("internal", type(error).__name__)
    elif found is not None:
        found.close()


def owner(error: BaseException) -> Connection | Arrival | None:
    """Return the connection, or the arriving socket, whose callback has raised this error; None if there is none.

    The event loop reports only the exception, and a socket that stays readable would raise it forever. A handler in
    every callback would slow down the hot ones; instead the frames of the traceback identify the connection.
    """
    place = error.__traceback__
    while place is not None:
        found = place.tb_frame.f_locals.get("self")
        if isinstance(found, Pump):
            found = found.owner
        if isinstance(found, Connection | Arrival):
            return found
        place = place.tb_next
    return None
