"""One process's report on a client over one window, as plain values; reports of several processes are merged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappush, heappushpop, nlargest
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from proxy.explain import parts
from proxy.explain.documents import CONNECTIONS_MAX, Missing, Neighbour, PushedTimes, largest, last_pushed
from proxy.explain.latencies import (
    NOTHING_PREDICTED,
    OwnReport,
    Predicted,
    class_of,
    merge_own,
    merge_predicted,
    percentile_ms,
    slowest_ms,
    time_percentile_ms,
)
from proxy.explain.parts import CLIENT, Windows, summed
from proxy.explain.rules import NEIGHBOURS_MAX, NO_RATES, Rates, Rule
from proxy.explain.wants import Demand, merge_demands
from proxy.explain.watch import Client, Meter, Watch
from quotas.definitions.kinds import CLIENT_KEYS, CONSUMER_BYTE_RATE

# ----------------------------------------------------------------------------------------------------
# What a client takes, and the most that it would take without a limit, as far as that can be known.
#
# A client that sends the next request when it has the response to the last one takes what it takes in the time that
# it does not wait, and without a limit it would take as much in each such time: `taken / (span - waited)`. Amounts
# and waits are of the same span, so this holds over any one, whatever the limit was meanwhile. Of several
# connections, the one with the least time beside its waits makes the bound of all.
#
# A Fetch above its quota is responded to without records, to tell the throttle time, and asked again after it. The
# way of that response and of the next Fetch brings nothing, so its time counts as a wait (`ConnectionTime.told_ms`).
#
# The span begins anew when the client begins to wait: with enforcement, with another limit, or when it asks for more
# than before. Until the span is long enough, and of a client that waits nearly all of its time, the most is not
# known. What it was seen to take is a lower bound in any case.


_KNOWN_MS_MIN: Final = 5_000
_FREE_MIN: Final = 0.1  # with less, the bound is more than ten times what it takes, which says nothing
_MS_PER_SECOND: Final = 1000.0
_FETCH: Final = CLIENT_KEYS.index(CONSUMER_BYTE_RATE)


class DemandSum:
    """Estimates a client's demand for each kind of quota: `add` its connections one by one, then take `demands`."""

    def __init__(self, client: Client, window: int, now_ms: int) -> None:
        self._taken, self._window, self._now_ms = client.taken, window, now_ms
        began = (client.taken.waiting.get(key) for key in CLIENT_KEYS)
        self._since_ms = [0 if one is None else one.since_ms for one in began]
        # Of connections that were not idle all of the time: the least time beside waits, and the longest time.
        self._free_ms: list[float | None] = [None] * len(CLIENT_KEYS)
        self._spans_ms = [0.0] * len(CLIENT_KEYS)

    def add(self, meter: Meter) -> None:
        """Add the time of one connection.

        The demand is what the client took, divided by the least time in which one of its connections did not wait.
        """
        if meter.windows is None:
            return
        spans = {since_ms: self._span(meter.windows, since_ms) for since_ms in set(self._since_ms)}
        for index, since_ms in enumerate(self._since_ms):
            whole, free_ms = spans[since_ms]
            if not whole:
                continue
            if index == _FETCH and meter.told is not None:
                free_ms -= sum(ms for (ms,) in meter.told.slots(self._window, self._now_ms, since_ms))
            before = self._free_ms[index]
            self._free_ms[index] = free_ms if before is None else min(before, free_ms)
            self._spans_ms[index] = max(self._spans_ms[index], whole)

    def _span(self, windows: Windows, since_ms: int) -> tuple[float, float]:
        """Return a connection's time, and that beside its waits; zeros if it has been idle."""
        slots = windows.slots(self._window, self._now_ms, since_ms)
        times: tuple[float, ...] = tuple(map(sum, zip(*slots, strict=True)))
        whole = sum(times)
        if not whole or times[parts.IDLE] >= whole:
            return 0.0, 0.0
        return whole, whole - times[parts.HELD] - times[parts.MUTED]

    def demands(self) -> tuple[Demand, ...]:
        """Return the demand of each kind, in the order of CLIENT_KEYS."""
        return tuple(map(self._demand, range(len(CLIENT_KEYS))))

    def _demand(self, index: int) -> Demand:
        taken, window, now_ms, since_ms = self._taken, self._window, self._now_ms, self._since_ms[index]
        window_ms = Windows.length_ms(window, now_ms)
        rate = taken.amount(index, window, now_ms) * _MS_PER_SECOND / window_ms
        highest = max(rate, taken.highest(index, window, now_ms))
        steady = Windows.length_ms(window, now_ms, since_ms) == window_ms
        free_ms, span_ms = self._free_ms[index], self._spans_ms[index]
        if free_ms is None:
            return Demand(rate, highest, None if since_ms else highest, steady)
        if span_ms < _KNOWN_MS_MIN or free_ms < _FREE_MIN * span_ms:
            return Demand(rate, highest, None, steady)
        most = taken.amount(index, window, now_ms, since_ms) * _MS_PER_SECOND / free_ms
        return Demand(rate, highest, most, steady)


_SAID_MS_MAX: Final = 900_000  # brokers ask clients for their metrics every 5 minutes by default
LOOKED_AT_MAX: Final = 500  # connections of each client in a list, about 2 ms


class ConnectionReport(msgspec.Struct, frozen=True, array_like=True):
    """The report on one connection.

    Args:
        peer: the client's address and port.
        broker: its broker's id; -1 if it is not known.
        open_ms: the time for which it has been watched, in ms.
        times: its time in each part (`proxy.explain.parts`), in ms.
        in_flight: the number of requests that await a response.
        waits_ms: how long its present throttle (hold or mute) still lasts, in ms; 0 if it is not throttled.
        acks_all: whether its last timed Produce waited for followers too.
        in_flight_max: the largest number of requests in flight at a visit in the last one or two minutes.
    """

    peer: str
    broker: int
    open_ms: int
    times: tuple[float, ...]
    library: str = ""
    batch_bytes: float = 0.0
    in_flight: int = 0
    waits_ms: int = 0
    acks_all: bool = False
    in_flight_max: int = 0


class BrokerReport(msgspec.Struct, frozen=True, array_like=True):
    """One broker's response times over a window.

    Args:
        classes: the estimated number of requests in each class of durations (`latencies.class_of`); a request under
            way counts with its age.
        timed: the number of timed requests.
        ms: the time of all completed requests together, in ms.
        under_way: the number of requests that it has had for longer than the time between two visits (`Watch`).
        oldest_ms: the age of the oldest of them, in ms.
    """

    broker: int
    classes: tuple[float, ...]
    timed: int = 0
    ms: float = 0.0
    under_way: int = 0
    oldest_ms: int = 0

    @property
    def requests(self) -> float:
        """The estimated number of completed requests."""
        return max(0.0, sum(self.classes) - self.under_way)

    @property
    def slowest_ms(self) -> float:
        """The time of the slowest request, in ms."""
        return slowest_ms(self.classes)

    def percentile_ms(self, part: float) -> float:
        """The time that a share `part` (0 to 1) of the requests did not exceed, in ms."""
        return percentile_ms(self.classes, part)

    def time_percentile_ms(self, part: float) -> float:
        """The percentile by time, in ms: requests that took no longer have a share `part` (0 to 1) of all time."""
        return time_percentile_ms(self.classes, part)


class OwnBroker(msgspec.Struct, frozen=True, array_like=True):
    """One client's connections and requests at one broker.

    Args:
        connections: the number of its open connections there.
        times: the time of these connections in each part (`proxy.explain.parts`), in ms.
        requests: the estimated number of completed requests.
        ms: the broker's time for these requests, in ms.
    """

    broker: int
    connections: int
    times: tuple[float, ...]
    requests: float
    ms: float


class ClientReport(msgspec.Struct, frozen=True, array_like=True):
    """What one process knows of one client over a window.

    Args:
        connections: the connections that wait longest, at most CONNECTIONS_MAX.
        connections_total: the number of all connections.
        times: the time of all connections together in each part (`proxy.explain.parts`), in ms.
        waits: the waits of all connections together, in ms, by rule.
        probes: the estimated number of requests that brokers have responded to.
        broker_ms: the brokers' time for these requests, in ms.
        brokers: its connections and requests at each broker; empty in a list of clients.
        unread_ms: the time in ms in which it did not read its responses; it is contained in the part CLIENT.
        predicted: the waits that it would have if quotas were enforced.
        rates: its rates, in the order of CLIENT_KEYS.
        demands: its demand of each kind, in the order of CLIENT_KEYS; empty in a list of clients.
        address: the address whose connections the report is about; "" for all.
        telemetry: what its own library says of its throttle times, by kind of request; not longer than a quarter of an
            hour ago.
    """

    user: str
    client_id: str
    connections: tuple[ConnectionReport, ...]
    connections_total: int
    times: tuple[float, ...]
    waits: tuple[tuple[Rule, float], ...]
    probes: float
    broker_ms: float
    brokers: tuple[OwnBroker, ...] = ()
    unread_ms: float = 0.0
    predicted: Predicted = NOTHING_PREDICTED
    rates: Rates = NO_RATES
    address: str = ""
    demands: tuple[Demand, ...] = ()
    telemetry: tuple[PushedTimes, ...] = ()


class ConnectionsSum:
    """Adds up the reports on a client's connections, of which there may be 10,000, and keeps the worst of them.

    Args:
        most: the number of connections to keep: those that wait longest. If it is 1, no times are added up.

    Attributes:
        total: the number of added connections.
    """

    def __init__(self, most: int = CONNECTIONS_MAX) -> None:
        self._most = most
        self._kept: list[tuple[tuple[float, float], int, ConnectionReport]] = []
        self.total = 0
        self._brokers: dict[int, list[float]] = {}

    def add(self, one: ConnectionReport) -> None:
        """Add a connection's times; keep it if it is one of those that wait longest."""
        self.total += 1
        entry = (waiting_order(one), -self.total, one)
        (heappush if len(self._kept) < self._most else heappushpop)(self._kept, entry)
        if self._most > 1:
            sums = self._brokers.setdefault(one.broker, [0.0] * (1 + len(parts.NAMES)))
            for index, value in enumerate((1.0, *one.times)):
                sums[index] += value

    def worst(self) -> tuple[ConnectionReport, ...]:
        """Return the kept connections, the one that waits longest first."""
        return tuple(one for _, _, one in sorted(self._kept, reverse=True))

    def times(self) -> tuple[float, ...]:
        """Return the times of all connections by part, in ms; zeros if only one connection is kept."""
        sums = (0.0,) * len(parts.NAMES)
        for _, *times in self._brokers.values():
            sums = tuple(map(float.__add__, sums, times))
        return sums

    def brokers(self) -> Iterator[OwnBroker]:
        """Yield the number and the times of the connections at each broker; nothing if only one connection is kept."""
        for broker, (count, *times) in self._brokers.items():
            yield OwnBroker(broker, int(count), tuple(times), 0.0, 0.0)


def report_in_list(client: Client, window: int, now_ms: int, rates: Rates) -> ClientReport:
    """Return the report on a client for a list of clients: with one connection, the one that waits longest.

    Only the first LOOKED_AT_MAX connections are compared.
    """
    found = ConnectionsSum(most=1)
    for one in islice(connection_reports(client, window, now_ms), LOOKED_AT_MAX):
        found.add(one)
    return report(client, window, now_ms, found, rates)


def report(
    client: Client,
    window: int,
    now_ms: int,
    connections: ConnectionsSum,
    rates: Rates = NO_RATES,
    demands: tuple[Demand, ...] = (),
) -> ClientReport:
    """Return the report on a client over a window: TEN_SECONDS, MINUTE or QUARTER of `proxy.explain.parts`.

    Args:
        connections: the sum of the connections that `connection_reports` has yielded.
    """
    waits = ((rule, sums.sums(window, now_ms)[0]) for rule, sums in client.rules.items())
    asked = {broker: sums.sums(window, now_ms) for broker, sums in client.brokers.items()}
    return ClientReport(
        client.user,
        client.client_id,
        connections.worst(),
        len(client.meters),
        tuple(client.windows.sums(window, now_ms)),
        tuple((rule, ms) for rule, ms in waits if ms > 0),
        sum(requests for requests, _ in asked.values()),
        sum(ms for _, ms in asked.values()),
        _brokers(connections, asked),
        0.0 if client.unread is None else client.unread.sums(window, now_ms)[0],
        _predicted(client, window, now_ms),
        rates,
        demands=demands,
        telemetry=tuple(_pushed(client, now_ms)),
    )


def merge(reports: Iterable[ClientReport]) -> ClientReport | None:
    """Merge several processes' reports on one client; None if there are none."""
    found = list(reports)
    if len(found) < 2:
        return found[0] if found else None
    waits = summed(wait for one in found for wait in one.waits)
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
        _merge_own(broker for one in found for broker in one.brokers),
        sum(one.unread_ms for one in found),
        merge_predicted(one.predicted for one in found),
        tuple(map(sum, zip(*(one.rates for one in found), strict=True))),
        found[0].address,
        tuple(map(merge_demands, zip(*(one.demands for one in found), strict=True))),
        last_pushed(row for one in found for row in one.telemetry),
    )


def brokers_of(watch: Watch, window: int, now_ms: int) -> list[BrokerReport]:
    """Return each broker's response times over a window; its long requests under way count with their ages."""
    ages = watch.under_way.ages_ms()
    found = []
    for broker in sorted({*watch.latencies.brokers(), *ages}):
        classes, timed, ms = watch.latencies.times(broker, window, now_ms)
        aged = ages.get(broker, ())
        for age_ms in aged:
            classes[class_of(age_ms * 1000)] += 1
        if sum(classes):
            found.append(BrokerReport(broker, tuple(classes), timed, ms, len(aged), max(aged, default=0)))
    return found


def merge_brokers(reports: Iterable[BrokerReport]) -> list[BrokerReport]:
    """Merge several processes' reports into one for each broker, in the order of their ids."""
    found: dict[int, BrokerReport] = {}
    for one in reports:
        other = found.setdefault(one.broker, one)
        if other is not one:
            found[one.broker] = BrokerReport(
                one.broker,
                tuple(map(sum, zip(one.classes, other.classes, strict=True))),
                one.timed + other.timed,
                one.ms + other.ms,
                one.under_way + other.under_way,
                max(one.oldest_ms, other.oldest_ms),
            )
    return [found[broker] for broker in sorted(found)]


def waiting_order(connection: ConnectionReport) -> tuple[float, float]:
    """Return a sort key, higher for connections that wait for quotas for more of their time, then for busier ones."""
    return waited_part(connection.times), -part_of(connection.times, parts.IDLE)


def waited_ms(times: Sequence[float]) -> float:
    """Return the time for which a client or connection was throttled (held or muted), in ms."""
    return times[parts.HELD] + times[parts.MUTED]


def waited_part(times: Sequence[float]) -> float:
    """Return the share of the time (0 to 1) for which a client or connection was throttled (held or muted)."""
    return part_of(times, parts.HELD) + part_of(times, parts.MUTED)


def part_of(times: Sequence[float], part: int) -> float:
    """Return the share (0 to 1) of one part, such as `parts.BROKER`, in the whole time; 0 if there is no time."""
    whole = sum(times)
    return times[part] / whole if whole > 0 else 0.0


def _brokers(connections: ConnectionsSum, asked: Mapping[int, Sequence[float]]) -> tuple[OwnBroker, ...]:
    open_ones = tuple(connections.brokers())
    if not open_ones:
        return ()
    nothing = (0.0,) * len(parts.NAMES)
    asked_ones = (OwnBroker(broker, 0, nothing, *sums) for broker, sums in asked.items() if sums[0])
    return _merge_own((*open_ones, *asked_ones))


def _merge_own(brokers: Iterable[OwnBroker]) -> tuple[OwnBroker, ...]:
    """Add up a client's figures at the same broker, of several processes."""
    found: dict[int, OwnBroker] = {}
    for one in brokers:
        other = found.setdefault(one.broker, one)
        if other is not one:
            found[one.broker] = OwnBroker(
                one.broker,
                one.connections + other.connections,
                tuple(map(sum, zip(one.times, other.times, strict=True))),
                one.requests + other.requests,
                one.ms + other.ms,
            )
    return tuple(found[broker] for broker in sorted(found))


def _pushed(client: Client, now_ms: int) -> Iterator[PushedTimes]:
    for kind, said in sorted(client.telemetry.items()):
        ago_ms = max(0, now_ms - said.at_ms)
        if ago_ms <= _SAID_MS_MAX:
            average_ms, longest_ms = said.times[kind]
            yield PushedTimes(
                kind=kind, average_ms=average_ms, longest_ms=longest_ms, seconds_ago=round(ago_ms / 1000, 1)
            )


def _predicted(client: Client, window: int, now_ms: int) -> Predicted:
    meters = (meter.predicted for meter in islice(client.meters, LOOKED_AT_MAX))
    parts_of = (waits.part(window, now_ms) for waits in meters if waits is not None)
    return client.predictions.report(parts_of, window, now_ms)


def connection_reports(
    client: Client, window: int, now_ms: int, demand: DemandSum | None = None
) -> Iterator[ConnectionReport]:
    """Yield a report on each of a client's connections; connections may be added and removed during the iteration.

    Args:
        demand: where each connection is also added, unless it is None.
    """
    for meter in list(client.meters):
        if demand is not None:
            demand.add(meter)
        yield _connection(meter, window, now_ms)


def _connection(meter: Meter, window: int, now_ms: int) -> ConnectionReport:
    if meter.windows is None:
        times = [0.0] * len(parts.NAMES)
        times[parts.IDLE] = float(max(0, meter.seen_ms - meter.since_ms))
    else:
        times = meter.windows.sums(window, now_ms)
    library, batch_bytes, in_flight, until_ms, acks_all = meter.particulars
    return ConnectionReport(
        meter.peer,
        meter.broker,
        now_ms - meter.since_ms,
        tuple(times),
        library,
        batch_bytes,
        in_flight,
        max(0, until_ms - now_ms),
        acks_all,
        meter.in_flight_max,
    )


# ----------------------------------------------------------------------------------------------------
# The response of one process to a query about clients and brokers, and the sum of several processes' responses.


class Query(msgspec.Struct, frozen=True, array_like=True):
    """A query to one process about clients and brokers.

    Args:
        window: TEN_SECONDS, MINUTE or QUARTER.
        client: a user and client id; None for all clients, each only with the connection that waits longest.
        brokers_only: whether only brokers' response times are wanted.
        address: for one client, the address whose connections are wanted; "" for all.
        client_id: if it is not None, only clients with this client id are wanted, of all users, without their rates.
    """

    window: int
    client: tuple[str, str] | None = None
    brokers_only: bool = False
    address: str = ""
    client_id: str | None = None

    @property
    def of_all(self) -> bool:
        """Whether it asks for all clients with all of their rates, which takes the longest."""
        return self.client is None and self.client_id is None and not self.brokers_only


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What one process, or all together, has seen of clients and brokers: the response to a `Query`.

    Args:
        neighbours: for one client, by rule that it waits or would wait for, the clients that share its budget.
        own: Sluice's own CPU time and delays.
        backlogs: the bytes that the neighbours would have left to send, by rule.
        missing: the worker processes whose figures it lacks.
    """

    clients: tuple[ClientReport, ...]
    neighbours: Mapping[Rule, tuple[Neighbour, ...]]
    brokers: tuple[BrokerReport, ...]
    own: OwnReport | None = None
    backlogs: Mapping[Rule, float] = {}
    missing: tuple[Missing, ...] = ()


NOTHING: Final = Seen((), {}, ())


class SeenSum:
    """Adds up several processes' responses, which arrive in portions."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], list[ClientReport]] = {}
        self._neighbours: dict[Rule, list[Neighbour]] = {}
        self._brokers: list[BrokerReport] = []
        self._own: list[OwnReport | None] = []
        self._backlogs: dict[Rule, float] = {}

    def add(self, seen: Seen) -> None:
        """Add a portion of one process's response."""
        for report in seen.clients:
            self._reports.setdefault((report.user, report.client_id), []).append(report)
        for rule, some in seen.neighbours.items():
            self._neighbours.setdefault(rule, []).extend(some)
        self._brokers += seen.brokers
        self._own.append(seen.own)
        for rule, backlog in seen.backlogs.items():
            self._backlogs[rule] = self._backlogs.get(rule, 0.0) + backlog

    def clients(self) -> Iterator[ClientReport]:
        """Yield the report of each client once, merged from all processes."""
        for reports in self._reports.values():
            merged = merge(reports)
            if merged is not None:
                yield merged

    def sum(self, clients: Iterable[ClientReport]) -> Seen:
        """Return one response, merged from all portions.

        Args:
            clients: the clients to put in it: those that the method `clients` has yielded.
        """
        neighbours = {rule: largest(some, NEIGHBOURS_MAX) for rule, some in self._neighbours.items()}
        brokers = tuple(merge_brokers(self._brokers))
        return Seen(tuple(clients), neighbours, brokers, merge_own(self._own), self._backlogs)


# ----------------------------------------------------------------------------------------------------
# A client's report for the connections of one address only. Pure.


def from_address(connections: Iterator[ConnectionReport], address: str) -> Iterator[ConnectionReport]:
    """Yield the connections from one client address; all connections if it is ""."""
    return (one for one in connections if not address or one.peer.rpartition(":")[0] == address)


def of_address(client: ClientReport, connections: ConnectionsSum, address: str) -> ClientReport:
    """Return a client's report for its connections from one address only.

    Waits are counted by client and rule, so an address gets a part of them in proportion to the time that its
    connections waited. Rates and the brokers' times stay those of the whole client.

    Args:
        client: the report of the whole client.
        connections: the connections of the address.
    """
    times = connections.times()
    whole = waited_ms(client.times)
    part = min(1.0, waited_ms(times) / whole) if whole > 0 else 0.0
    return replace(
        client,
        address=address,
        connections_total=connections.total,
        times=times,
        waits=tuple((rule, part * ms) for rule, ms in client.waits if part * ms > 0),
        unread_ms=min(client.unread_ms, times[CLIENT]),
    )
