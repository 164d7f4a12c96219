"""Visits connections in turn; each visit attributes the time since the last one to what the connection does now.

A visit costs a few microseconds, whatever the connection has moved; `process.watching` decides how many there are. A
connection's holds and mutes are exact: they are subtracted first, and only the rest of the time is sampled. While a
broker owes a response, the last probe says how the time divides into the broker's, and the wait that the request
itself asked for. A follower is a client too, of the user FOLLOWERS; while its Fetch leaves out replicas for a limit,
its time counts as held: those replicas wait.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from protocol import api
from proxy.channel import (
    ASKED,
    AT_BROKER,
    AT_CLIENT,
    IN_SLUICE,
    UNREAD,
    Condition,
    Muting,
    Probe,
    ReplicaThrottle,
    Telemetry,
)
from proxy.channel.request_time import ANY_WAIT
from proxy.explain import parts
from proxy.explain.latencies import ConnectionWaits, Latencies, PredictedWaits, Predictions, Waits
from proxy.explain.parts import LONG_SLOTS_MS, QUARTER, Windows
from proxy.explain.rules import Rule, rule_of
from quotas.definitions.kinds import CLIENT_KINDS, MUTATION
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.client import ClientQuota
from quotas.throttles.connections import UserThrottle

_NS_PER_MS: Final = 1_000_000


# ----------------------------------------------------------------------------------------------------
# Further values of one connection for operators: the client's software, its batches, its present wait.


# A timed request counts an eighth, those before it the rest: the mean follows a change within some 20 requests.
_NEWEST_PART: Final = 0.125
_FETCHES: Final = frozenset((api.FETCH, api.SHARE_FETCH))


class Particulars(NamedTuple):
    """Values of one connection that operators see: the client's software, its batches, its present wait.

    Args:
        library: name and version of the client's software; "" if it has not sent them (KIP-511).
        batch_bytes: the mean size of its timed Produce requests and responses to Fetches; 0 before the first.
        in_flight: the number of requests that await a response, as of the last visit.
        waits_until_ms: the time at which its present throttle (hold or mute) ends; 0 if it is not throttled.
        acks_all: whether its last timed Produce waited for followers too.
    """

    library: str = ""
    batch_bytes: float = 0.0
    in_flight: int = 0
    waits_until_ms: int = 0
    acks_all: bool = False

    def after(self, condition: Condition) -> "Particulars":
        """Return these values, updated with the condition at a later visit; the same object if nothing has changed."""
        probes = condition.probed.probes
        found = Particulars(
            condition.library,
            batch_bytes(self.batch_bytes, probes),
            condition.owed,
            condition.waits_until_ms,
            next((one.acks_all for one in reversed(probes) if one.key == api.PRODUCE), self.acks_all),
        )
        return self if found == self else found


NO_PARTICULARS: Final = Particulars()


def batch_bytes(mean: float, probes: Iterable[Probe]) -> float:
    """Return the moving mean of a connection's batch sizes, in bytes, after further timed requests.

    A Fetch that has waited for records does not count: its response is empty or smaller than the Fetch permits.

    Args:
        mean: the mean before; 0 if there is none yet.
    """
    for probe in probes:
        if probe.key == api.PRODUCE:
            size = probe.request_bytes
        elif probe.key in _FETCHES and not probe.waited_ns:
            size = probe.response_bytes
        else:
            continue
        mean = mean + _NEWEST_PART * (size - mean) if mean else float(size)
    return mean


# ----------------------------------------------------------------------------------------------------
# Requests that brokers have had for longer than the time between visits: all are counted, timed or not.
#
# Only few requests are timed, and a request without a response never ends. So each visit notes a request that is
# older than the time between visits. While it is under way, its age counts among the response times; when it has
# ended, it counts as one request, and not again among the timed ones.


class Ended(NamedTuple):
    """A request that was at a broker for longer than the time between two visits, and has its response now.

    Args:
        took_ns: the time at the broker, without the wait that the request itself asked for, such as a Fetch's.
        probe: the times that were measured of it; None if it was not timed, so that `took_ns` is an estimate.
    """

    broker: int
    took_ns: int
    probe: Probe | None


class _Long(NamedTuple):
    broker: int
    since_ms: int
    age_ms: int  # without the wait that it asked for


class UnderWay:
    """The requests that brokers have had for longer than the time between two visits, at most one a connection."""

    def __init__(self) -> None:
        self._long: dict[Hashable, _Long] = {}

    def visit(
        self, connection: Hashable, condition: Condition, interval_ms: int, now_ms: int
    ) -> Ended | None:
        """Update a connection's long request; return it if it has ended since the last visit, else None.

        Args:
            interval_ms: the time between two visits: a request that is at least as old is a long one.
        """
        age_ms = _age_ms(condition)
        since_ms = now_ms - condition.asked_ms
        last = self._long.get(connection)
        if age_ms >= interval_ms:
            self._long[connection] = _Long(condition.broker, since_ms, age_ms)
        elif last is None:
            return None
        else:
            del self._long[connection]
        if last is None or (age_ms >= interval_ms and last.since_ms == since_ms):
            return None
        for probe in condition.probed.probes:
            if probe.sent_ns // _NS_PER_MS == last.since_ms and probe.took_ns > 0:
                return Ended(last.broker, probe.took_ns - probe.waited_ns, probe)
        # It ended at any time since the last visit.
        return Ended(last.broker, (last.age_ms + interval_ms // 2) * _NS_PER_MS, None)

    def end(self, connection: Hashable) -> None:
        """Remove the long request of a connection that has closed, without counting it."""
        self._long.pop(connection, None)

    def ages_ms(self) -> dict[int, list[int]]:
        """Return the ages of the long requests in ms, by broker, as of the last visits."""
        found: dict[int, list[int]] = {}
        for broker, _, age_ms in self._long.values():
            found.setdefault(broker, []).append(age_ms)
        return found


def _age_ms(condition: Condition) -> int:
    """Return how long the broker has had a request beyond the wait that it asked for; -1 if that is unknown."""
    probe = condition.probe
    if condition.activity != ASKED or probe is None or probe.wait_ns == ANY_WAIT:
        return -1
    return condition.asked_ms - probe.wait_ns // _NS_PER_MS


# ----------------------------------------------------------------------------------------------------
# What one client takes of each kind of quota, counted at visits, and since when it waits.


_PAUSE_MS: Final = 30_000  # a client whose waits are further apart begins anew
_BROKERS_MAX: Final = 64  # of one client; what it takes at further ones is not counted
_COUNT_MS: Final = 50
_MS_PER_SECOND: Final = 1000.0
_MUTATIONS: Final = CLIENT_KINDS.index(MUTATION)


class Waiting(NamedTuple):
    """The first and the last of a client's waits for one quota key, without a long pause between two waits.

    Args:
        since_ms: the time of the first wait.
        last_ms: the time of the last wait.
    """

    since_ms: int
    last_ms: int


class Taken:
    """The amounts that one client takes of each kind of quota (an index of CLIENT_KINDS), counted at visits.

    Attributes:
        waiting: by quota key, since when it waits; after a pause of 30 s or a change of the limit it starts again.
    """

    __slots__ = ("_limits", "_mutations", "_read", "_windows", "waiting")

    def __init__(self) -> None:
        self._windows: Windows | None = None
        self._read: dict[
            int, tuple[ClientQuota, int, tuple[int, ...]]
        ] = {}  # by broker: when, and the counters
        self._mutations = 0  # counted once for all brokers
        self._limits: dict[Rule, float | None] = {}
        self.waiting: dict[str, Waiting] = {}

    def count(self, quota: ClientQuota, now_ms: int) -> None:
        """Count what the client has taken at the quota's broker since the last call for that broker.

        The first call for a broker only stores the counters: what it took before is not known.
        """
        broker = quota.broker
        before = self._read.get(broker)
        if before is None:
            if len(self._read) < _BROKERS_MAX:
                counts = quota.taken()
                self._read[broker] = quota, now_ms, counts
                self._mutations = max(self._mutations, counts[_MUTATIONS])
            return
        known, at_ms, earlier = before
        if known is quota and now_ms - at_ms < _COUNT_MS:
            return
        counts = quota.taken()
        self._read[broker] = quota, now_ms, counts
        if counts == earlier:
            return
        if known is not quota:  # the engine had removed it, with its counters
            earlier = (0,) * len(CLIENT_KINDS)
        grown = [count - last for count, last in zip(counts, earlier, strict=True)]
        grown[_MUTATIONS] = max(0, counts[_MUTATIONS] - self._mutations)
        self._mutations = max(self._mutations, counts[_MUTATIONS])
        if self._windows is None:
            self._windows = Windows(len(CLIENT_KINDS), "f")
        for index, amount in enumerate(grown):
            if amount:
                self._windows.add(index, float(amount), now_ms)

    def waits(self, rule: Rule, limit: float | None, now_ms: int) -> None:
        """Record a wait for a rule in `waiting`.

        Args:
            limit: the rule's value now; None if it is unknown.
        """
        before = self.waiting.get(rule.key)
        known = self._limits.setdefault(rule, limit)
        if before is None or now_ms - before.last_ms > _PAUSE_MS or known != limit:
            self._limits[rule] = limit
            self.waiting[rule.key] = Waiting(now_ms, now_ms)
        else:
            self.waiting[rule.key] = before._replace(last_ms=now_ms)

    def forget(self, rule: Rule) -> None:
        """Drop the limit that is stored for a rule, when its client drops the rule."""
        self._limits.pop(rule, None)

    def amount(self, index: int, window: int, now_ms: int, since_ms: int = 0) -> float:
        """Return the amount that the client took over a window, in the quota's unit.

        Args:
            index: the kind of quota, as an index of CLIENT_KINDS.
            since_ms: earlier slots of the window are left out.
        """
        if self._windows is None:
            return 0.0
        found = sum(slot[index] for slot in self._windows.slots(window, now_ms, since_ms))
        return max(0.0, found) / CLIENT_KINDS[index].unit.counted

    def highest(self, index: int, window: int, now_ms: int) -> float:
        """Return the highest rate per second over any complete slot of 10 s or 60 s in a window; 0 without any.

        Args:
            index: the kind of quota, as an index of CLIENT_KINDS.
        """
        if self._windows is None:
            return 0.0
        rates = [0.0]
        for ring, slot_ms in LONG_SLOTS_MS:
            if ring <= window:
                complete = list(self._windows.slots(ring, now_ms))[1:]
                rates += [slot[index] * _MS_PER_SECOND / slot_ms for slot in complete]
        return max(rates) / CLIENT_KINDS[index].unit.counted


CLIENTS_MAX: Final = 20_000  # further ones share one entry
OTHER: Final = "<other>"  # as in the engine
FOLLOWERS: Final = "<replication>"
TIMED_PART: Final = 0.0625  # of the time, a connection's requests are timed
BROKERS_MAX: Final = 64  # of one client; further ones share the entry of an unknown one
RULES_MAX: Final = 16  # of one client: five kinds, and topics; the one it has waited least for makes room

_FORGET_MS: Final = 900_000  # a client without a connection
_MINUTE_MS: Final = 60_000
_SINGLE: Final = {AT_CLIENT: parts.CLIENT, IN_SLUICE: parts.SLUICE, AT_BROKER: parts.BROKER}


@dataclass(slots=True, eq=False)
class Meter:
    """One connection's time, divided into the parts of `proxy.explain.parts`, and its waits for quotas.

    Attributes:
        windows: its time in each part, in ms; None while it has only been idle.
        broker: the id of its broker.
        peer: the client's address and port.
        particulars: further values for operators, as of its last visit.
        waits: its waits for quotas in the present minute; None before the first wait.
        predicted: its waits if quotas were enforced; None before the first.
        told: the times in ms from the end of a mute that a Fetch response without records has reported until the
            client's next Fetch; they count as waits. None before the first.
    """

    peer: str
    since_ms: int
    seen_ms: int
    broker: int = -1
    client: "Client | None" = None
    held_ms: int = 0
    muted_ms: int = 0
    particulars: Particulars = NO_PARTICULARS
    windows: Windows | None = None
    waits: ConnectionWaits | None = None
    predicted: PredictedWaits | None = None
    told: Windows | None = None
    told_ms: int = 0
    _most: int = 0
    _most_before: int = 0
    _most_minute: int = 0

    def note_in_flight(self, owed: int, now_ms: int) -> None:
        """Update `in_flight_max` with the number of requests that await a response at a visit."""
        minute = now_ms // _MINUTE_MS
        if minute != self._most_minute:
            self._most_before = self._most if minute == self._most_minute + 1 else 0
            self._most, self._most_minute = 0, minute
        self._most = max(self._most, owed)

    @property
    def in_flight_max(self) -> int:
        """The largest number of requests in flight at a visit in the present minute or the one before."""
        return max(self._most, self._most_before)


@dataclass(slots=True, eq=False)
class Client:
    """One client: a user with a client id.

    Attributes:
        windows: the time of all of its connections in each part (`proxy.explain.parts`), in ms.
        taken: what it takes, and since when it waits.
        rules: by rule that has made it wait, windows with the waiting time in ms at index 0.
        waits: the sums of these times, by kind of quota, which never decrease.
        predictions: its waits if quotas were enforced.
        meters: its open connections.
        brokers: by broker, windows with the estimated number of its requests (index 0), and their time in ms (1).
        unread: windows with the time in ms in which it did not read its responses; None before the first such time.
        telemetry: by kind of request, the last PushTelemetry with its throttle times (KIP-714).
        seen_ms: when it last had a connection.
    """

    user: str
    client_id: str
    windows: Windows = field(default_factory=lambda: Windows(len(parts.NAMES)))
    taken: Taken = field(default_factory=Taken)
    rules: dict[Rule, Windows] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)
    predictions: Predictions = field(default_factory=Predictions)
    meters: set[Meter] = field(default_factory=set)
    brokers: dict[int, Windows] = field(default_factory=dict)
    unread: Windows | None = None
    telemetry: dict[str, Telemetry] = field(default_factory=dict)
    seen_ms: int = 0

    def waited(self, rule: Rule, meter: Meter, ms: float, now_ms: int, limit: float | None = None) -> None:
        """Add a wait of `ms` of one of its connections, `meter`, to the sums of the rule that made it wait.

        Args:
            limit: the rule's value now; None if it is unknown.
        """
        self.taken.waits(rule, limit, now_ms)
        if meter.waits is None:
            meter.waits = ConnectionWaits()
        self.waits.add(rule.kind, meter.waits, ms, now_ms)
        found = self.rules.get(rule)
        if found is None:
            if len(self.rules) >= RULES_MAX:
                least = min(self.rules, key=lambda rule: self.rules[rule].sums(QUARTER, now_ms)[0])
                del self.rules[least]
                self.taken.forget(least)
            found = self.rules[rule] = Windows(1)
        found.add(0, ms, now_ms)

    def pushed(self, telemetry: Telemetry) -> None:
        """Keep what its library says of its throttle times, unless another of its connections has said it later."""
        for kind in telemetry.times:
            last = self.telemetry.get(kind)
            if last is None or last.at_ms < telemetry.at_ms:
                self.telemetry[kind] = telemetry

    def asked(self, broker: int, took_ns: int, weight: float, now_ms: int) -> None:
        """Count a broker's response to one of its requests, which took `took_ns` at the broker.

        Args:
            weight: the number of requests that this one stands for, since only a sample is timed.
        """
        found = self.brokers.get(broker)
        if found is None:
            if len(self.brokers) >= BROKERS_MAX:
                broker = -1
            found = self.brokers.setdefault(broker, Windows(2, "f"))
        found.add(0, weight, now_ms)
        found.add(1, weight * took_ns / _NS_PER_MS, now_ms)


class Watch:
    """Divides the time of all connections of one process into parts, and sums it up by client.

    Attributes:
        clients: by user and client id.
        latencies: brokers' response times.
        under_way: the requests that brokers have had for longer than the time between visits.
    """

    def __init__(self) -> None:
        self.clients: dict[tuple[str, str], Client] = {}
        self.latencies = Latencies()
        self.under_way = UnderWay()
        self._meters: dict[Hashable, Meter] = {}
        self._throttled: dict[tuple[str, str], Client] = {}  # since they were last taken

    def visit(
        self, connection: Hashable, condition: Condition, peer: str, interval_ms: int, now_ms: int
    ) -> None:
        """Add a connection's time since its last visit to the sums of the connection and of its client.

        Args:
            condition: what the connection does now, and the sums of its holds and mutes.
            peer: the client's address and port.
            interval_ms: the time between two visits, which is also the time that a connection's first visit adds.
        """
        meter = self._meters.get(connection)
        if meter is None:
            meter = self._meters[connection] = Meter(peer, now_ms, now_ms - interval_ms)
        elapsed_ms = max(0, now_ms - meter.seen_ms)
        meter.seen_ms = now_ms
        meter.broker = condition.broker
        meter.particulars = meter.particulars.after(condition)
        meter.note_in_flight(condition.owed, now_ms)
        client = self._client_of(meter, condition, now_ms)
        if client is None:
            return
        if condition.quota is not None:
            client.taken.count(condition.quota, now_ms)
        if condition.telemetry is not None and client.client_id != OTHER:
            client.pushed(condition.telemetry)
        held_ms, meter.held_ms = condition.held_ms - meter.held_ms, condition.held_ms
        muted_ms, meter.muted_ms = condition.muted_ms - meter.muted_ms, condition.muted_ms
        if held_ms or muted_ms:
            self._add_waits(client, meter, condition, held_ms, muted_ms, now_ms)
        rest_ms = elapsed_ms - held_ms - muted_ms
        if rest_ms > 0:
            self._add_rest(client, meter, condition, rest_ms, now_ms)
        ended = self.under_way.visit(connection, condition, interval_ms, now_ms)
        if ended is not None:
            self._count(client, ended.broker, ended.took_ns, 1.0, now_ms)
        if condition.probed.probes:
            self._count_probes(client, condition, None if ended is None else ended.probe, now_ms)
        if condition.virtual_time is not None:
            _add_time(client, meter, condition.virtual_time, elapsed_ms, now_ms)

    def end(self, connection: Hashable) -> None:
        """Remove a connection that has ended; its time stays in its client's sums."""
        self.under_way.end(connection)
        meter = self._meters.pop(connection, None)
        if meter is not None and meter.client is not None:
            meter.client.meters.discard(meter)

    def keep(self, connections: Iterable[Hashable]) -> None:
        """Remove all connections that are not among these, which are still open."""
        for connection in self._meters.keys() - set(connections):
            self.end(connection)

    def expire(self, now_ms: int) -> Iterator[None]:
        """Drop clients without a connection for a quarter of an hour; the work is done while the caller iterates."""
        for key, client in list(self.clients.items()):
            if not client.meters and now_ms - client.seen_ms > _FORGET_MS:
                del self.clients[key]
            yield

    def take_throttled(self, count: int) -> dict[tuple[str, str], Client]:
        """Return and remove at most `count` of the clients that have been held or muted, by user and client id.

        A client is returned again only after a further hold or mute.
        """
        if len(self._throttled) <= count:
            taken, self._throttled = self._throttled, {}
            return taken
        return {key: self._throttled.pop(key) for key in list(islice(self._throttled, count))}

    def __len__(self) -> int:
        """Return the number of connections that have been visited."""
        return len(self._meters)

    def _client_of(self, meter: Meter, condition: Condition, now_ms: int) -> Client | None:
        """Return the client that the connection belongs to now."""
        if condition.follower >= 0:
            key = FOLLOWERS, f"broker-{condition.follower}"
        elif condition.quota is None:
            return meter.client
        else:
            key = condition.quota.user, condition.quota.client_id
        client = meter.client
        if client is None or (client.user, client.client_id) != key:
            if client is not None:
                client.meters.discard(meter)
            client = self.clients.get(key)
            if client is None:
                if len(self.clients) >= CLIENTS_MAX:
                    key = OTHER, OTHER
                client = self.clients.setdefault(key, Client(*key))
            client.meters.add(meter)
            meter.client = client
        client.seen_ms = now_ms
        return client

    def _add_waits(
        self, client: Client, meter: Meter, condition: Condition, held_ms: int, muted_ms: int, now_ms: int
    ) -> None:
        self._throttled[client.user, client.client_id] = client
        for part, ms in ((parts.HELD, held_ms), (parts.MUTED, muted_ms)):
            if ms > 0:
                _add(client, meter, part, ms, now_ms)
        quota = condition.quota
        if held_ms > 0:
            if condition.leaving_out is not None:
                _waited(client, condition.leaving_out, meter, held_ms, now_ms)
            elif quota is not None:  # only a Produce is held
                _waited(client, quota.produce, meter, held_ms, now_ms)
        if muted_ms > 0 and condition.muting is not None:
            _waited(client, condition.muting, meter, muted_ms, now_ms)

    def _add_rest(
        self, client: Client, meter: Meter, condition: Condition, rest_ms: int, now_ms: int
    ) -> None:
        """Attribute the time since the last visit that remains without holds and mutes."""
        if condition.activity == UNREAD:
            _add(client, meter, parts.CLIENT, rest_ms, now_ms)
            client.unread = client.unread or Windows(1)
            client.unread.add(0, rest_ms, now_ms)
            return
        if condition.activity != ASKED:
            _add(client, meter, _SINGLE.get(condition.activity, parts.IDLE), rest_ms, now_ms)
            return
        if condition.leaving_out is not None:
            _add(client, meter, parts.HELD, rest_ms, now_ms)
            _waited(client, condition.leaving_out, meter, rest_ms, now_ms)
            return
        if condition.follower >= 0:  # it waits for records that are not written yet, as a rule
            _add(client, meter, parts.POLL, rest_ms, now_ms)
            return
        poll = _poll_part(condition)
        for part, share in ((parts.POLL, poll), (parts.BROKER, 1 - poll)):
            if share > 0:
                _add(client, meter, part, share * rest_ms, now_ms)

    def _count_probes(self, client: Client, condition: Condition, counted: Probe | None, now_ms: int) -> None:
        """Count the timed requests except `counted`; each has a weight that stands for those not timed."""
        probes, missed = condition.probed
        weight = (len(probes) + missed) / len(probes) / TIMED_PART
        for probe in probes:
            took_ns = probe.took_ns - probe.waited_ns
            if (
                took_ns > 0 and probe is not counted
            ):  # a Fetch that may have waited says nothing of its broker
                self._count(client, condition.broker, took_ns, weight, now_ms)

    def _count(self, client: Client, broker: int, took_ns: int, weight: float, now_ms: int) -> None:
        self.latencies.add(broker, took_ns, now_ms, weight)
        client.asked(broker, took_ns, weight, now_ms)


def _add_time(client: Client, meter: Meter, time: ConnectionTime, elapsed_ms: int, now_ms: int) -> None:
    if time.told_ms != meter.told_ms:
        meter.told = meter.told or Windows(1, "f")
        meter.told.add(0, float(time.told_ms - meter.told_ms), now_ms)
        meter.told_ms = time.told_ms
    if time.waited_ms:
        if meter.predicted is None:
            meter.predicted = PredictedWaits()
        client.predictions.add(time, meter.predicted.update(time, elapsed_ms, now_ms), now_ms)


def _waited(client: Client, throttle: Muting | ReplicaThrottle, meter: Meter, ms: float, now_ms: int) -> None:
    limit = throttle.limit_now() if isinstance(throttle, UserThrottle) else throttle.limit
    client.waited(rule_of(throttle), meter, ms, now_ms, limit)


def _poll_part(condition: Condition) -> float:
    """Return the part of the time at the broker, 0 to 1, that is a wait which the request itself asked for."""
    probe = condition.probe
    if probe is None or not probe.wait_ns:
        return 0.0
    if 0 < probe.wait_ns < condition.asked_ms * _NS_PER_MS:
        return 0.0  # longer than it may wait
    return 1.0 if probe.took_ns <= 0 else min(1.0, probe.waited_ns / probe.took_ns)


def _add(client: Client, meter: Meter, part: int, ms: float, now_ms: int) -> None:
    client.windows.add(part, ms, now_ms)
    if meter.windows is None:
        if part == parts.IDLE:
            return
        meter.windows = Windows(len(parts.NAMES), "f")
    meter.windows.add(part, ms, now_ms)
