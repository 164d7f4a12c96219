"""Channels of every kind, configured by bytes: client's, captured, follower's; with whatever quotas there are."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from protocol.messages.fetch_session import SessionTable
from protocol.messages.reassignments import Ongoing
from proxy.channel import BATCH_WEIGHT, KEEP, Channel, ChannelSettings, Machine, OngoingMoves, ShownMove, Tap
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions, UnknownUsers
from quotas.replication.replication_quotas import (
    BrokerLimits,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from tests.fuzz.draw import Draw
from tests.support.frames import topic_id
from tests.support.playbook import gateway_address

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
_SESSIONS_MAX: Final = 20
_FRAMES_BYTES_MAX: Final = 64 * 1024 * 1024
_TOPICS: Final = ("t", "u", "free")
_FRAMES: Final = ("off", "blank", KEEP)
_UNKNOWN_USERS: Final[tuple[UnknownUsers, ...]] = ("none", "default", "refuse")
_MOVES: Final = {("t", 0): ShownMove(Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), None)}

# Bits of the first two bytes, the lowest first.
_GATEWAY, _SCHEDULE, _OBSERVE, _BANDWIDTH, _REQUESTS, _MUTATIONS, _TOPICS_LIMITED, _SASL = (
    1 << bit for bit in range(8)
)
_QUOTA_API, _REASSIGNMENTS, _TRUSTED, _CONNECTIONS, _SAMPLED, _BOOTSTRAP, _AS_KAFKA, _SCOPE = (
    1 << bit for bit in range(8, 16)
)


class _Rows:
    """A recorder that forgets."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.add = self.rows.append
        self.left = BATCH_WEIGHT
        self._room = _FRAMES_BYTES_MAX

    def full(self) -> None:
        self.rows.clear()
        self.left = BATCH_WEIGHT

    def reserve(self, size: int) -> bool:
        if size > self._room:
            return False
        self._room -= size
        return True


def _definitions(bits: int) -> Definitions:
    found = Definitions()
    limits: dict[str, float] = {}
    if bits & _BANDWIDTH:
        limits |= {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0}
    if bits & _REQUESTS:
        limits["request_percentage"] = 0.5
    if bits & _MUTATIONS:
        limits["controller_mutation_rate"] = 2.0
    entries: dict[Entity, Mapping[str, float]] = {Entity(client_id=DEFAULT): limits} if limits else {}
    if bits & _CONNECTIONS:
        entries[Entity(user=DEFAULT)] = {"connection_creation_rate": 1.0}
    if bits & _TOPICS_LIMITED:
        entries[Entity(topic="t")] = {"producer_byte_rate": 500.0, "consumer_byte_rate": 500.0}
    for entity, values in entries.items():
        found.put(entity, values)
    return found


def _engine(bits: int) -> Engine:
    options = EngineOptions(
        policy="schedule" if bits & _SCHEDULE else "kip13",
        mode="observe" if bits & _OBSERVE else "enforce",
        scope="cluster" if bits & _SCOPE else "broker",
        unknown_users=_UNKNOWN_USERS[(bits >> 16) % len(_UNKNOWN_USERS)],
        new_connections="as-kafka" if bits & _AS_KAFKA else "held",
        charge_auto_created=bool(bits & _MUTATIONS),
    )
    engine = Engine(options, _definitions(bits))
    for name in _TOPICS:
        engine.topics.names.learn(topic_id(name), name)
    return engine


def _replication() -> ReplicationQuotas:
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.name_topics({topic_id(name): name for name in _TOPICS})
    every = parse_replicas("*")[0]
    quotas.throttle(ThrottledReplicas(leaders={"t": every}, followers={"u": every}))
    quotas.limit(BrokerLimits(default=5000), BrokerLimits(default=3000))
    return quotas


def _settings(bits: int, replication: ReplicationQuotas | None = None) -> ChannelSettings:
    moves = None
    if bits & _REASSIGNMENTS:
        moves = OngoingMoves()
        moves.moves = _MOVES
    return ChannelSettings(
        broker=-1 if bits & _BOOTSTRAP else 1,
        address_map=gateway_address if bits & _GATEWAY else None,
        frame_bytes_max=FRAME_BYTES_MAX,
        serves_quota_api=bool(bits & _QUOTA_API),
        sasl=bool(bits & _SASL),
        trusted=bool(bits & _TRUSTED),
        replication=replication,
        reassignments=moves,
    )


def _plain(bits: int, _frames: str) -> Machine:
    return Channel(_settings(bits), _engine(bits), SessionTable(_SESSIONS_MAX), Stats())


def _captured(bits: int, frames: str) -> Machine:
    tap = Tap(_Rows(), 7, "10.0.0.1", "clients", frames, 0.5 if bits & _SAMPLED else 1.0)
    return Channel(_settings(bits), _engine(bits), SessionTable(_SESSIONS_MAX), Stats(), tap)


def _follower(bits: int, _frames: str) -> Machine:
    settings = _settings(bits & ~_BOOTSTRAP, _replication())
    return Channel(settings, Engine(EngineOptions(), Definitions()), SessionTable(1), Stats())


KINDS: Final[Mapping[str, Callable[[int, str], Machine]]] = {
    "plain": _plain,
    "captured": _captured,
    "follower": _follower,
}


def channel(kind: str, draw: Draw) -> Machine:
    """Make a channel; its first three bytes say how it is configured."""
    bits = draw.byte()
    bits |= draw.byte() << 8
    choices = draw.byte()
    bits |= choices // len(_FRAMES) << 16
    return KINDS[kind](bits, _FRAMES[choices % len(_FRAMES)])
