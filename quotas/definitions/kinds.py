"""The kinds of quotas, one row for each: all that differs between them and is not arithmetic.

Definitions, the quotas file, the API, `sluice quotas`, metrics, `/v1`, explanations, events and captures read this
table instead of naming kinds themselves.

Five kinds have a key that Kafka's tools know. A topic's quotas have the keys of the byte rates, and count all clients
together; Kafka has no such quotas, nor connection rates of users, nor rates of catch-up reads. A replication throttle
is no quota of an entity, and is in the table for the names that it has where waits are shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Owner = Literal["client", "user", "ip", "topic"]
"""What may have a limit: a client (any of Kafka's eight levels of user and client id), a user without a client id, an
IP address, or a topic."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a limit.

    Attributes:
        name: the unit as text: bytes/s, %, partitions/s or connections/s.
        counted: how much a throttle counts for 1 of the unit: 10,000 (microseconds of request time) for 1 %, else 1.
    """

    name: str
    counted: int = 1


BYTES: Final = Unit("bytes/s")
PERCENT: Final = Unit("%", counted=10_000)
PARTITIONS: Final = Unit("partitions/s")
CONNECTIONS: Final = Unit("connections/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of quota: its names, unit and quota key, and the entities that may have it.

    Attributes:
        name: Sluice's own name, one word, in /v1, captures and explanations.
        type: Kafka's name, the label `type` of metrics.
        unit: the unit of its limits.
        key: the quota key in Kafka's spelling; "" for a kind without a key of its own (topic, replication).
        owners: the sorts of entities that may have such a limit.
        whole_max: the largest limit where Kafka's type is a whole number (LONG, INT); None where it is a DOUBLE.
        series: the group of metrics that shows this kind; "" if only the metrics of waits show it.
        holder: the word before the owner's name in sentences, as "user" in "user 'ann'"; "": the `name` of the kind.
    """

    name: str
    type: str
    unit: Unit
    key: str = ""
    owners: tuple[Owner, ...] = ()
    whole_max: int | None = None
    series: str = ""
    holder: str = ""


LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CATCH_UP_BYTE_RATE: Final = "catch_up_byte_rate"

PRODUCE: Final = Kind(
    name="produce",
    type="Produce",
    key=PRODUCER_BYTE_RATE,
    unit=BYTES,
    owners=("client", "topic"),
    whole_max=LONG_MAX,
    series="clients",
)
FETCH: Final = Kind(
    name="fetch",
    type="Fetch",
    key=CONSUMER_BYTE_RATE,
    unit=BYTES,
    owners=("client", "topic"),
    whole_max=LONG_MAX,
    series="clients",
)
REQUEST: Final = Kind(
    name="request",
    type="Request",
    key=REQUEST_PERCENTAGE,
    unit=PERCENT,
    owners=("client",),
    series="requests",
)
MUTATION: Final = Kind(
    name="mutation",
    type="ControllerMutation",
    key=CONTROLLER_MUTATION_RATE,
    unit=PARTITIONS,
    owners=("client",),
    series="mutations",
)
CATCH_UP: Final = Kind(  # the part of what a client fetches that is behind the log's end
    name="catch-up",
    type="CatchUp",
    key=CATCH_UP_BYTE_RATE,
    unit=BYTES,
    owners=("client",),
    whole_max=LONG_MAX,
    series="clients",
)
CONNECTION: Final = Kind(
    name="connection",
    type="Connection",
    key=CONNECTION_CREATION_RATE,
    unit=CONNECTIONS,
    owners=("user", "ip"),
    whole_max=INT_MAX,
    holder="user",
)
TOPIC: Final = Kind(name="topic", type="Topic", unit=BYTES, series="topics")
REPLICATION: Final = Kind(name="replication", type="Replication", unit=BYTES, holder="broker")

KINDS: Final = (PRODUCE, FETCH, REQUEST, MUTATION, CATCH_UP, CONNECTION, TOPIC, REPLICATION)
CLIENT_KINDS: Final = tuple(kind for kind in KINDS if "client" in kind.owners)
BY_NAME: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in KINDS})
BY_TYPE: Final[Mapping[str, Kind]] = MappingProxyType({kind.type: kind for kind in KINDS})
# In the order in which an entity's limits are shown and written.
BY_KEY: Final[Mapping[str, Kind]] = MappingProxyType({kind.key: kind for kind in KINDS if kind.key})


def _keys_of(*owners: Owner) -> tuple[str, ...]:
    return tuple(key for key, kind in BY_KEY.items() if not set(owners).isdisjoint(kind.owners))


KEYS: Final = tuple(BY_KEY)
CLIENT_KEYS: Final = _keys_of("client")
USER_KEYS: Final = _keys_of("client", "user")
IP_KEYS: Final = _keys_of("ip")
TOPIC_KEYS: Final = _keys_of("topic")
CAPACITY_KEYS: Final = TOPIC_KEYS  # one for each direction
KAFKA_KEYS: Final = tuple(key for key in KEYS if key != CATCH_UP_BYTE_RATE)
BYTE_RATES: Final = tuple(key for key, kind in BY_KEY.items() if kind.unit is BYTES)
INT_KEYS: Final = tuple(key for key, kind in BY_KEY.items() if kind.whole_max == INT_MAX)

# Sluice's own keys, which say on what terms an entity uses a capacity, and what is catching up; Kafka's tools do not
# know them.
PRODUCER_CEILING: Final = "producer_byte_rate_ceiling"
CONSUMER_CEILING: Final = "consumer_byte_rate_ceiling"
CATCH_UP_CEILING: Final = "catch_up_byte_rate_ceiling"
WEIGHT: Final = "weight"
EXEMPT: Final = "exempt"
CEILINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: PRODUCER_CEILING,
        CONSUMER_BYTE_RATE: CONSUMER_CEILING,
        CATCH_UP_BYTE_RATE: CATCH_UP_CEILING,
    }
)
CATCH_UP_LAG: Final = (
    "catch_up_lag"  # in records: what a consumer reads further behind the log's end is catch-up
)
WHOLE_KEYS: Final = (
    *(key for key, kind in BY_KEY.items() if kind.whole_max is not None),
    *CEILINGS.values(),
    CATCH_UP_LAG,
)
TERM_KEYS: Final = (*CEILINGS.values(), WEIGHT, EXEMPT)
OWN_KEYS: Final = (*TERM_KEYS, CATCH_UP_LAG)
WEIGHT_MAX: Final = 1e6
EACH: Final = "each"  # of a group: each of its members has the group's budget for itself
MEMBER: Final = "member"  # of a name in a group
FLAG_KEYS: Final = (EXEMPT, EACH, MEMBER)  # 1.0 or missing
GROUP_KEYS: Final = (*CLIENT_KEYS, *OWN_KEYS, EACH)
ALL_KEYS: Final = (*KEYS, *OWN_KEYS, EACH, MEMBER)


# Replication is a class of a broker's capacity in each direction, with the names of Kafka's dynamic configs of brokers
# (KIP-73); what is not throttled is a class of its own, which is never delayed.
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_UNTHROTTLED: Final = "leader.replication.unthrottled.rate"
FOLLOWER_UNTHROTTLED: Final = "follower.replication.unthrottled.rate"
REPLICATION_KEYS: Final = (LEADER_RATE, FOLLOWER_RATE, LEADER_UNTHROTTLED, FOLLOWER_UNTHROTTLED)
_CAPACITIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        CATCH_UP_BYTE_RATE: CONSUMER_BYTE_RATE,
        LEADER_RATE: CONSUMER_BYTE_RATE,
        LEADER_UNTHROTTLED: CONSUMER_BYTE_RATE,
        FOLLOWER_RATE: PRODUCER_BYTE_RATE,
        FOLLOWER_UNTHROTTLED: PRODUCER_BYTE_RATE,
    }
)


def capacity_key(key: str) -> str:
    """Return the quota key of the capacity that classes of this quota key share.

    What a broker sends as a leader, and catch-up reads, share that of consumers; what it receives as a follower, that
    of producers.

    >>> [capacity_key(key) for key in (CATCH_UP_BYTE_RATE, PRODUCER_BYTE_RATE, FOLLOWER_RATE)]
    ['consumer_byte_rate', 'producer_byte_rate', 'producer_byte_rate']
    """
    return _CAPACITIES.get(key, key)
