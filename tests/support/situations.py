"""Made-up clients in every kind of trouble, for the sentences that explain them (tests/unit/proxy/explain).

Each situation is what one process would have seen over the last minute. Times are parts of the minute.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from proxy.explain import parts
from proxy.explain.documents import Level, Neighbour
from proxy.explain.explanation import Context, Origin
from proxy.explain.latencies import CLASSES, OwnReport, class_of
from proxy.explain.parts import MINUTE, QUARTER
from proxy.explain.report import BrokerReport, ClientReport, ConnectionReport, OwnBroker, waiting_order
from proxy.explain.rules import Rule
from proxy.explain.wants import NO_DEMAND, Demand
from proxy.explain.watch import FOLLOWERS
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import CLIENT_KEYS

PRODUCE: Final = Rule("produce", "producer_byte_rate")
FETCH: Final = Rule("fetch", "consumer_byte_rate")
REQUEST: Final = Rule("request", "request_percentage")
MUTATION: Final = Rule("mutation", "controller_mutation_rate")
TOPIC: Final = Rule("topic", "producer_byte_rate", "orders")
CONNECTIONS: Final = Rule("connection", "connection_creation_rate", "ann")
DEFINITIONS: Final = Definitions(
    {
        Entity(client_id="web-1"): {"producer_byte_rate": 2e6, "consumer_byte_rate": 8e6},
        Entity(client_id=DEFAULT): {"request_percentage": 5, "controller_mutation_rate": 0.5},
        Entity("ann"): {"producer_byte_rate": 3e6, "connection_creation_rate": 4},
        Entity(DEFAULT): {"connection_creation_rate": 9},
        Entity("ann", "web-1"): {"consumer_byte_rate": 1e6},
        Entity(topic="orders"): {"producer_byte_rate": 1e5},
    },
    static=StaticQuotas(producer_default=9e6),
)
OPS: Final = Origin("User:ops from 10.0.0.4", "2026-11-22T10:31:00Z")
MINUTE_MS: Final = 60_000.0
NOW: Final = datetime(2026, 11, 22, 10, 40, tzinfo=UTC)

Situation = tuple[str, ClientReport, Context]


def spent(**named: float) -> tuple[float, ...]:
    """A minute; what is not named is idle."""
    found = [MINUTE_MS * named.get(name, 0.0) for name in parts.NAMES]
    found[parts.IDLE] += MINUTE_MS - sum(found)
    return tuple(found)


def connection(at: int = 2, /, **named: float) -> ConnectionReport:
    return ConnectionReport(f"10.0.0.9:{50_000 + at}", at, int(MINUTE_MS), spent(**named))


def client(
    *connections: ConnectionReport,
    waits: Mapping[Rule, float] | None = None,
    name: tuple[str, str] = ("", "web-1"),
    asked: Mapping[int, tuple[float, float]] | None = None,  # by broker: requests, ms of each
    unread: float = 0.0,
    demand: Demand = NO_DEMAND,  # for the rule that it waits for most
) -> ClientReport:
    brokers = [
        OwnBroker(broker, 1, spent(), requests, requests * ms)
        for broker, (requests, ms) in (asked or {}).items()
    ]
    key = max(waits, key=lambda rule: waits[rule]).key if waits else ""
    return ClientReport(
        *name,
        tuple(sorted(connections, key=waiting_order, reverse=True)),
        len(connections),
        tuple(map(sum, zip(*(one.times for one in connections), strict=True))),
        tuple((rule, part * MINUTE_MS) for rule, part in (waits or {}).items()),
        sum(one.requests for one in brokers),
        sum(one.ms for one in brokers),
        tuple(brokers),
        unread * MINUTE_MS,
        demands=tuple(demand if key == one else NO_DEMAND for one in CLIENT_KEYS),
    )


def asking(rate: float, most: float | None, highest: float = 0.0) -> Demand:
    return Demand(rate, max(rate, highest), most, most is not None)


def broker(number: int = 2, *, oldest_ms: int = 0, **counts: int) -> BrokerReport:
    """A broker with so many requests of so many ms: `ms3=1000`."""
    classes = [0.0] * CLASSES
    total_ms = 0.0
    for text, count in counts.items():
        ms = int(text.removeprefix("ms"))
        classes[class_of(1000 * ms)] += count
        total_ms += count * ms
    if oldest_ms:
        classes[class_of(1000 * oldest_ms)] += 1
    return BrokerReport(number, tuple(classes), 100, total_ms, 1 if oldest_ms else 0, oldest_ms)


def context(
    *brokers: BrokerReport, neighbours: Sequence[Neighbour] = (), origin: Origin = OPS, **fields: Any
) -> Context:
    found = Context(
        MINUTE,
        DEFINITIONS,
        True,
        7.0,
        lambda *_: origin,
        lambda _: neighbours,
        brokers or (broker(ms2=9000),),
        NOW,
    )
    return found._replace(**fields)


def taking(rate: float, *others: float, name: tuple[str, str] = ("", "web-1")) -> list[Neighbour]:
    found = [Neighbour(*name, rate)]
    found += [Neighbour("", f"web-{number}", other) for number, other in enumerate(others, start=2)]
    return sorted(found, key=lambda one: -one.rate)


def situations() -> Iterator[Situation]:
    """Yield what is the case, the client's report, and what else is known."""
    yield from _of_rules()
    yield from _of_entities()
    yield from _of_mixed_causes()
    yield from _of_brokers()
    yield from _of_clients()
    yield from _of_connections()
    yield from _of_times()
    yield from _of_capacities()


def _of_rules() -> Iterator[Situation]:
    takes = asking(2e6, 5e6)
    held = client(connection(held=0.6, broker=0.02), waits={PRODUCE: 0.6}, asked={2: (600, 3)}, demand=takes)
    yield "produce quota, schedule", held, context(neighbours=taking(2e6))
    muted = client(
        connection(muted=0.6, broker=0.1), waits={PRODUCE: 0.6}, asked={2: (600, 10)}, demand=takes
    )
    yield "produce quota, kip13", muted, context(neighbours=taking(2e6))
    fetched = client(
        connection(muted=0.4, broker=0.2),
        waits={FETCH: 0.4},
        asked={2: (300, 40)},
        demand=asking(8e6, 13.3e6),
    )
    yield "fetch quota", fetched, context(neighbours=taking(8e6))
    asks = client(connection(muted=0.97, broker=0.01), waits={REQUEST: 0.97}, asked={2: (600, 1)})
    yield "request quota", asks, context(neighbours=taking(5))
    makes = client(connection(muted=0.96, broker=0.03), waits={MUTATION: 0.96}, asked={2: (25, 63)})
    yield "partition mutations", makes, context(neighbours=taking(0.5))
    topical = client(connection(muted=0.99), waits={TOPIC: 0.99}, name=("", "loader"))
    yield "topic quota", topical, context()
    half = client(
        connection(muted=0.5, idle=0.5), waits={TOPIC: 0.5}, name=("", "loader"), demand=asking(1e5, 2e5)
    )
    loads = ("", "loader")
    yield "topic quota, known rate", half, context(neighbours=taking(1e5, name=loads))
    yield "topic quota with another client", half, context(neighbours=taking(1e5, 5e4, name=loads))
    yield "topic quota with three others", half, context(neighbours=taking(1e5, 5e4, 2e4, 9e4, name=loads))
    connects = client(connection(muted=0.5), waits={CONNECTIONS: 0.5}, name=("ann", "cron"))
    yield "rate of connections", connects, context()
    another = {Rule("connection", "connection_creation_rate", "bob"): 0.5}
    connects = client(connection(muted=0.5), waits=another, name=("bob", "cron"))
    yield "rate of connections, by default", connects, context()
    leader = Rule("replication", "leader.replication.throttled.rate", "1", 2e6)
    follows = client(connection(held=0.9, poll=0.1), waits={leader: 0.9}, name=(FOLLOWERS, "broker-3"))
    yield "follower, by its leader's limit", follows, context()
    follower = Rule("replication", "follower.replication.throttled.rate", "3", 5e6)
    follows = client(connection(held=0.3, poll=0.7), waits={follower: 0.3}, name=(FOLLOWERS, "broker-3"))
    yield "follower, by its own limit, with others in sync", follows, context()
    calm = client(connection(poll=0.98), name=(FOLLOWERS, "broker-3"))
    yield "follower in sync", calm, context()


def _of_entities() -> Iterator[Situation]:
    waits = {PRODUCE: 0.5}
    ann = client(connection(held=0.5), waits=waits, name=("ann", "batch"), demand=asking(1e6, 2e6))
    yield "budget of a user, shared", ann, context(neighbours=taking(1e6, 15e5, 5e5, name=("ann", "batch")))
    both = client(connection(muted=0.5), waits={FETCH: 0.5}, name=("ann", "web-1"), demand=asking(1e6, 2e6))
    yield "user with client id", both, context(neighbours=taking(1e6, name=("ann", "web-1")))
    static = client(connection(held=0.5), waits=waits, name=("", "other"))
    setting = Origin("quotas.producer_default in sluice.toml", "")
    yield "a setting in place of an entity", static, context(origin=setting)
    makes = client(connection(muted=0.5), waits={MUTATION: 0.5}, name=("", "web-1"))
    together = context(
        definitions=Definitions(), origin=Origin("quotas.partition_mutations_rate in sluice.toml", "")
    )
    yield "a limit of all clients together", makes, together
    file = client(connection(held=0.5), waits=waits)
    yield "quotas in a file", file, context(origin=Origin("quotas.toml", "2026-11-22T09:00:00Z"))
    yield "the brokers' own quotas", file, context(origin=Origin("the brokers' own quotas", ""))
    share = client(connection(held=0.5), waits=waits, demand=asking(8e5, 1.6e6))
    yield "a member with 40 % of a fleet's budget", share, context(neighbours=taking(8e5), member=True)
    yield "a rule that is gone", share, context(definitions=Definitions())
    nameless = client(connection(held=0.5), waits=waits, name=("ann", ""))
    yield "no client id", nameless, context()
    long = client(connection(held=0.5), waits=waits, name=("", "x" * 300))
    yield "a client id of 300 characters", long, context()
    markup = client(connection(held=0.5), waits=waits, name=("", "<b>web</b>"))
    yield "a client id made of markup", markup, context()
    yield "the last quarter of an hour", share, context(window=QUARTER)


def _of_mixed_causes() -> Iterator[Situation]:
    two = client(connection(muted=0.4, held=0.3), waits={TOPIC: 0.4, PRODUCE: 0.3})
    yield "two quotas", two, context()
    slow = client(connection(muted=0.3, client=0.6), waits={TOPIC: 0.3})
    yield "a topic quota and a slow client", slow, context()
    stopped = client(
        connection(held=0.2, broker=0.7),
        waits={PRODUCE: 0.2},
        asked={2: (20, 2100)},
        demand=asking(2e6, 2.5e6),
    )
    yield "a quota and a slow broker", stopped, context(broker(ms2100=20, ms1900=40), neighbours=taking(2e6))
    never = client(connection(held=0.995), waits={PRODUCE: 0.995}, demand=asking(2e6, None))
    yield "a client that never waits for its responses", never, context(neighbours=taking(2e6))
    before = client(connection(held=0.3), waits={PRODUCE: 0.3}, demand=asking(4e6, None, 5e6))
    yield "enforced for half of the minute", before, context(neighbours=taking(2e6))
    little = client(connection(muted=0.004, broker=0.5), waits={PRODUCE: 0.004}, asked={2: (1000, 30)})
    yield "hardly throttled", little, context(broker(ms30=9000), neighbours=taking(1e6))


def _of_brokers() -> Iterator[Situation]:
    waits = client(connection(broker=0.96), asked={2: (40, 1400)})
    yield "a broker slow for all", waits, context(broker(ms1400=500, ms1900=20))
    yield "a broker slow, and no other client", waits, context(broker(ms1400=40))
    yield "a broker slow for this client only", waits, context(broker(ms1400=40, ms2=5000))
    quick = client(connection(broker=0.96), asked={2: (28_000, 2)})
    yield "a quick broker, asked one thing after the other", quick, context(broker(ms2=60_000, ms6=100))
    still = client(connection(broker=0.8), asked={2: (12_000, 5)})
    yield "a broker that stands still most of the time", still, context(broker(ms1=12_000, ms400=115))
    hangs = client(connection(broker=1.0), asked={2: (10, 2)})
    yield "a broker that has not responded for 40 s", hangs, context(broker(ms2=900, oldest_ms=40_000))
    five = client(replace(connection(broker=0.96), in_flight_max=5), asked={2: (28_000, 2)})
    yield "a quick broker, with five requests in flight", five, context(broker(ms2=60_000, ms6=100))
    acks = client(replace(connection(broker=0.96), acks_all=True), asked={2: (40, 1400)})
    yield "a stopped follower, or a slow leader", acks, context(broker(ms1400=500, ms1900=20))
    unknown = client(connection(-1, broker=0.9), asked={-1: (40, 1400)})
    yield "an unknown broker", unknown, context()
    untimed = client(connection(3, broker=0.9))
    yield "a broker without a timed request", untimed, context()


def _of_clients() -> Iterator[Situation]:
    yield "idle", client(connection()), context()
    yield "mostly idle", client(connection(broker=0.02), asked={2: (600, 2)}), context()
    half = client(connection(broker=0.35), asked={2: (40, 500)})
    yield "half idle, half a slow broker", half, context(broker(ms500=400))
    yield "a consumer without new records", client(connection(poll=0.97)), context()
    yield "a slow reader", client(connection(client=0.9), unread=0.9), context()
    yield "a slow uploader", client(connection(client=0.9)), context()
    yield "slow to read and to send", client(connection(client=0.9), unread=0.5), context()
    busy = OwnReport((0.0,) * CLASSES, 57_000, 1_000_000, 0.97)
    yield "Sluice itself", client(connection(sluice=0.7, broker=0.1)), context(own=busy)
    yield "Sluice itself, and its own time is not known", client(connection(sluice=0.7)), context()
    nothing = replace(client(connection()), times=(0.0,) * 7, connections=())
    yield "not seen in the window", nothing, context()


def _of_connections() -> Iterator[Situation]:
    muted, slow = connection(1, muted=0.8), connection(2, broker=0.95)
    wants = asking(2e6, 10e6)
    several = client(muted, slow, slow, slow, waits={PRODUCE: 0.8}, asked={2: (40, 1400)}, demand=wants)
    yield "one of four connections waits, the others for a broker", several, context(neighbours=taking(2e6))
    alike = client(*[connection(1, muted=0.8)] * 4, waits={PRODUCE: 3.2}, demand=wants)
    yield "four connections wait alike", alike, context(neighbours=taking(2e6))
    spare = client(muted, connection(2), waits={PRODUCE: 0.8}, demand=wants)
    yield "one waits, the other has nothing to do", spare, context(neighbours=taking(2e6))
    mixed = client(connection(1, client=0.9), connection(2, broker=0.95), unread=0.9, asked={2: (40, 1400)})
    yield "one connection with a slow reader, one with a slow broker", mixed, context(broker(ms1400=500))


def _of_times() -> Iterator[Situation]:
    waits = client(connection(held=0.4, broker=0.02), waits={PRODUCE: 0.4}, demand=asking(2e6, 3e6))
    night, until = "hours=22:00-06:00", "until=2026-11-23T00:00:00Z"
    for name, rates in (
        ("a limit that is larger at night", {"": 2e6, night: 50e6}),
        ("a limit that ends", {until: 2e6}),
    ):
        entries = {
            Entity(client_id="web-1", when=one or None): {PRODUCE.key: rate} for one, rate in rates.items()
        }
        definitions = Definitions(entries)
        definitions.elapse(NOW)
        yield name, waits, context(definitions=definitions)


def _of_capacities() -> Iterator[Situation]:
    waits = client(connection(held=0.4, broker=0.02), waits={PRODUCE: 0.4}, demand=asking(7e6, 12e6))

    def level(binds: str, **fields: Any) -> Level:
        own: dict[str, Any] = {
            "entity": "client-id 'web-1'",
            "broker": -1,
            "capacity": 80e6,
            "rate": 5e6,
            "ceiling": 40e6,
            "has": 5e6,
            "lent": 2e6,
            "spare": 14e6,
            **fields,
        }
        return Level(binds=binds, **own)

    yield "a capacity that others use up", waits, context(level=level("capacity"))
    of_broker = level("capacity", broker=2)
    yield "the capacity of a broker, of a member", waits, context(level=of_broker, member=True)
    nothing = level(
        "capacity", entity="clients without a limit", shared=True, rate=0.0, has=2.4e6, spare=21e6
    )
    unpromised = client(connection(held=0.4), waits={PRODUCE: 0.4}, name=("", "other"))
    stated = Definitions({Entity(capacity="cluster"): {"producer_byte_rate": 80e6}})
    yield "a class without a promised rate", unpromised, context(level=nothing, definitions=stated)
    yield "without one, of which the holder says nothing", unpromised, context(definitions=stated)
    returned = level("capacity", has=3.1e6)
    yield "a rate of which a part was used", waits, context(level=returned)
    shrunk = level("shrunk", has=4e6, lent=0.0, spare=0.0, shrunk=0.8)
    yield "more is promised than there is", waits, context(level=shrunk)
    bare = level(
        "shrunk", entity=nothing.entity, shared=True, rate=0.0, has=1.9e6, lent=0.0, spare=0.0, shrunk=0.8
    )
    yield "more is promised, for a class without a rate", unpromised, context(level=bare, definitions=stated)
    top = level("ceiling", lent=35e6, spare=60e6)
    yield "a class at its ceiling", waits, context(level=top)
    own = level("rate", ceiling=5e6, lent=0.0)
    yield "a class that borrows nothing", waits, context(level=own)
    group = level("capacity", entity="group 'team-web'", shared=True)
    together = context(level=group, neighbours=taking(2e6, 3e6, 2e6))
    yield "a group's budget, in a capacity that is used up", waits, together
    leader = Rule("replication", "leader.replication.throttled.rate", "1", 2e6)
    follows = client(connection(held=0.9, poll=0.1), waits={leader: 0.9}, name=(FOLLOWERS, "broker-3"))
    sends = level("capacity", entity="leader replication", broker=1, rate=2e6, has=2e6, lent=1e6)
    yield "a follower, by what its leader's broker has left", follows, context(level=sends)
    both = client(connection(muted=0.2, held=0.3), waits={TOPIC: 0.2, PRODUCE: 0.3}, demand=asking(7e6, 12e6))
    yield "a capacity and a topic quota", both, context(level=level("capacity"))
