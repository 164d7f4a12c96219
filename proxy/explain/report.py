"""What one process has seen of a client in one window: plain values, which those of other processes are added to."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final, NamedTuple

from proxy.explain import parts
from proxy.explain.latencies import Latencies, percentile_ms
from proxy.explain.rules import Rule
from proxy.explain.watch import Client, Meter

__all__ = [
    "CONNECTIONS_MAX",
    "BrokerReport",
    "ClientReport",
    "ConnectionReport",
    "brokers_of",
    "merge",
    "report",
]

CONNECTIONS_MAX: Final = 100  # of one client: those that wait longest

LOOKED_AT_MAX: Final = 500  # connections of one client, about 2 ms


class ConnectionReport(NamedTuple):
    """One connection.

    Args:
        peer: the client's address and port.
        broker: its broker's id; -1: not known.
        open_ms: how long it has been watched.
        times: by part, in ms.
    """

    peer: str
    broker: int
    open_ms: int
    times: tuple[float, ...]


class BrokerReport(NamedTuple):
    """One broker's response times over the last minute.

    Args:
        classes: how many timed responses are in each class of `latencies`.
    """

    broker: int
    classes: tuple[float, ...]

    @property
    def timed(self) -> int:
        """How many responses were timed."""
        return int(sum(self.classes))

    def percentile_ms(self, part: float) -> float:
        """The time that this part of the responses did not exceed, in ms."""
        return percentile_ms(self.classes, part)


class ClientReport(NamedTuple):
    """One client.

    Args:
        connections: those that wait longest, at most CONNECTIONS_MAX.
        connections_total: all of them.
        times: of all connections together, in ms.
        waits: the time in ms by rule.
        probes: how many requests were timed.
        broker_ms: the brokers' time of these together.
    """

    user: str
    client_id: str
    connections: tuple[ConnectionReport, ...]
    connections_total: int
    times: tuple[float, ...]
    waits: tuple[tuple[Rule, float], ...]
    probes: float
    broker_ms: float


def report(client: Client, window: int, now_ms: int, connections_max: int = CONNECTIONS_MAX) -> ClientReport:
    """Return what was seen of a client over a window (`windows`)."""
    found = (_connection(meter, window, now_ms) for meter in islice(client.meters, LOOKED_AT_MAX))
    waits = ((rule, sums.sums(window, now_ms)[0]) for rule, sums in client.rules.items())
    probes, broker_ms = client.probes.sums(window, now_ms)
    return ClientReport(
        client.user,
        client.client_id,
        tuple(nlargest(connections_max, found, key=waiting_order)),
        len(client.meters),
        tuple(client.windows.sums(window, now_ms)),
        tuple((rule, ms) for rule, ms in waits if ms > 0),
        probes,
        broker_ms,
    )


def merge(reports: Iterable[ClientReport]) -> ClientReport | None:
    """Add up what several processes have seen of one client; None for none."""
    found = list(reports)
    if len(found) < 2:
        return found[0] if found else None
    waits: dict[Rule, float] = {}
    for rule, ms in (wait for one in found for wait in one.waits):
        waits[rule] = waits.get(rule, 0.0) + ms
    connections = (connection for one in found for connection in one.connections)
    return ClientReport(
        found[0].user,
        found[0].client_id,
        tuple(nlargest(CONNECTIONS_MAX, connections, key=waiting_order)),
        sum(one.connections_total for one in found),
        tuple(map(sum, zip(*(one.times for one in found), strict=True))),
        tuple(waits.items()),
        sum(one.probes for one in found),
        sum(one.broker_ms for one in found),
    )


def brokers_of(latencies: Latencies, now_ms: int) -> list[BrokerReport]:
    """Return all brokers' response times."""
    found = ((broker, latencies.classes(broker, now_ms)) for broker in latencies.brokers())
    return [BrokerReport(broker, tuple(classes)) for broker, classes in found if sum(classes)]


def merge_brokers(reports: Iterable[BrokerReport]) -> list[BrokerReport]:
    """Add up what several processes have seen of brokers."""
    found: dict[int, BrokerReport] = {}
    for one in reports:
        other = found.setdefault(one.broker, one)
        if other is not one:
            classes = tuple(map(sum, zip(one.classes, other.classes, strict=True)))
            found[one.broker] = BrokerReport(one.broker, classes)
    return sorted(found.values())


def waiting_order(connection: ConnectionReport) -> tuple[float, float]:
    """Sort key: how much of its time a connection waits for a quota, then how little it is idle."""
    return waited_part(connection.times), -part_of(connection.times, parts.IDLE)


def waited_part(times: Sequence[float]) -> float:
    """The part of the time that was held or muted."""
    return part_of(times, parts.HELD) + part_of(times, parts.MUTED)


def part_of(times: Sequence[float], part: int) -> float:
    """The part of the whole that one part is; 0 of nothing."""
    whole = sum(times)
    return times[part] / whole if whole > 0 else 0.0


def _connection(meter: Meter, window: int, now_ms: int) -> ConnectionReport:
    if meter.windows is None:
        times = [0.0] * len(parts.NAMES)
        times[parts.IDLE] = float(max(0, meter.seen_ms - meter.since_ms))
    else:
        times = meter.windows.sums(window, now_ms)
    return ConnectionReport(meter.peer, meter.broker, now_ms - meter.since_ms, tuple(times))
