"""A client's report for the connections of one address only. Pure."""

from collections.abc import Iterator

from proxy.explain.parts import CLIENT
from proxy.explain.report import ClientReport, ConnectionReport, ConnectionsSum, waited_ms


def from_address(connections: Iterator[ConnectionReport], address: str) -> Iterator[ConnectionReport]:
    """Yield the connections of an address; all connections for ""."""
    return (one for one in connections if not address or one.peer.rpartition(":")[0] == address)


def of_address(client: ClientReport, connections: ConnectionsSum, address: str) -> ClientReport:
    """Return the report of the connections of one address.

    Waits are counted by client and rule, so an address gets a part of them in proportion to the time that its
    connections waited. Rates and the brokers' times stay those of the whole client.

    Args:
        client: the report of the whole client.
        connections: the connections of the address.
    """
    times = connections.times()
    whole = waited_ms(client.times)
    part = min(1.0, waited_ms(times) / whole) if whole > 0 else 0.0
    return client._replace(
        address=address,
        connections_total=connections.total,
        times=times,
        waits=tuple((rule, part * ms) for rule, ms in client.waits if part * ms > 0),
        unread_ms=min(client.unread_ms, times[CLIENT]),
    )
