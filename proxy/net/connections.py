"""Every connection of one process: what is done with all of them, and which one gives way when there are too many.

All of them are visited in portions, between which others run. So one may have ended since the visit began, which is
skipped; and one that raises is ended alone.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from proxy.net.arrival import Arrival
from proxy.net.connection import Connection
from proxy.net.holdings import Holdings
from proxy.net.pump import Pump
from proxy.net.shared import Arriving, now_ms

__all__ = ["Connections", "end_owner", "give_way"]

_PORTION: Final = 200  # connections visited in one turn of the loop
_LOOKED_AT_MAX: Final = 1000  # connections of one address, of which the longest idle one is sought

logger = logging.getLogger(__name__)


class Connections(Holdings[Connection]):
    """All of them, by their clients' addresses."""

    async def sweep(self) -> None:
        """Close those that are idle or slow for too long."""
        now = now_ms()
        await self._visit(lambda connection: connection.sweep(now))

    async def reconsider(self) -> None:
        """Ask again those that wait: quotas have changed, or enforcement was switched."""
        await self._visit(lambda connection: connection.reconsider())

    async def drain(self) -> None:
        """Let each one go on with its end."""
        now = now_ms()
        await self._visit(lambda connection: connection.drain(now))

    async def close(self, cause: str) -> None:
        """End all of them."""
        await self._visit(lambda connection: connection.close(cause))

    def idlest(self) -> Connection | None:
        """Give the longest idle connection of the address that has most."""
        return min(self.of_most(_LOOKED_AT_MAX), key=lambda connection: connection.active_ms, default=None)

    async def _visit(self, act: Callable[[Connection], object]) -> None:
        for index, connection in enumerate(list(self)):
            if not connection.closed:
                self._act(connection, act)
            if index % _PORTION == _PORTION - 1:
                await asyncio.sleep(0)

    def _act(self, connection: Connection, act: Callable[[Connection], object]) -> None:
        try:
            act(connection)
        except Exception as error:  # noqa: BLE001 - the edge of a connection: the others go on
            try:
                connection.failed(connection.requests, error)
            except Exception:
                logger.exception("cannot close a failed connection")
                self.discard(connection)


def give_way(connections: Connections, arrivals: Holdings[Arriving], host: str, *, to_arrive: bool) -> bool:
    """Make room for a newcomer, if some address has too many: what it has had unfinished or idle for longest ends.

    Args:
        host: of the newcomer; its address may not hold as many itself.
        to_arrive: whether it is room among the arrivals that is needed.
    """
    if to_arrive or arrivals.most > connections.most:
        if not arrivals.unfair_to(host):
            return False
        (oldest,) = arrivals.of_most(1)
        oldest.give_way()
        return True
    if not connections.unfair_to(host):
        return False
    idlest = connections.idlest()
    assert idlest is not None, "an address holds more than one"
    problem = f"limits.connections_max is reached, and its address has {connections.most} connections"
    idlest.close("address_share", problem)
    return True


def end_owner(error: BaseException) -> None:
    """End the connection whose callback has raised this, if it was one's."""
    found = owner(error)
    if isinstance(found, Connection):
        found.close("internal", type(error).__name__)
    elif found is not None:
        found.close()


def owner(error: BaseException) -> Connection | Arrival | None:
    """Give the connection whose callback has raised this; None where it was no connection's.

    The event loop tells nothing but the exception, and a socket that stays readable would have it raised for ever.
    Edges of their own would have to stand in every callback, the hot ones included; the frames know whose they are.
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
