"""What a worker is told, and in which order."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Self

from protocol.messages.reassignments import AlterRequest, Ongoing
from proxy.channel import Forward, OngoingMoves, PeerError, ShownMove
from proxy.config import Address, Config
from proxy.control.cluster import BrokerMap
from proxy.control.reassign.api import Planned, plan_of
from proxy.process.life import Feed, State
from proxy.process.messages import (
    PORTION,
    Brokers,
    Configure,
    Enforce,
    Forwarded,
    Message,
    Moves,
    QuotaBatch,
    ReadCertificates,
    Refusal,
    Response,
    TopicsNamed,
)
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity, code

RATE = {"producer_byte_rate": 5.0}
MOVE = ShownMove(Ongoing((1, 2), (2,), (1,)), None)


class Rig:
    """A feed that runs, and whose messages are kept."""

    def __init__(self, entities: int = 0) -> None:
        self.definitions = Definitions({Entity(client_id=f"c{n}"): RATE for n in range(entities)})
        self.brokers = BrokerMap((Address("127.0.0.1", 1),), Stats())
        self.moves = OngoingMoves()
        self.names: dict[bytes, str] = {}
        self.state = State(Config(), self.definitions, self.brokers, self.names, self.moves)
        self.feed = Feed(self.state, self._send)
        self.sent: list[Message] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self.feed.run())
        await self.turn()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def turn(self) -> list[Message]:
        """Return what is sent now."""
        self.sent = []
        for _ in range(20):
            await asyncio.sleep(0)
        return self.sent

    async def _send(self, message: Message) -> bool:
        self.sent.append(message)
        return True


async def test_new_worker_gets_everything_and_then_the_end_of_the_quotas() -> None:
    rig = Rig(PORTION + 1)
    rig.brokers.learn(1, "127.0.0.1", 9)
    rig.names[b"i" * 16] = "t"
    async with rig:
        batches = [message for message in rig.sent if isinstance(message, QuotaBatch)]
        assert [type(message) for message in rig.sent] == [Brokers, TopicsNamed, *[QuotaBatch] * 3]
        sizes = [(len(batch.entries), batch.complete) for batch in batches]
        assert sizes == [(PORTION, False), (1, False), (0, True)]


async def test_nothing_is_sent_while_nothing_changes() -> None:
    async with Rig() as rig:
        rig.feed.wake()
        assert await rig.turn() == []


async def test_changed_quota_is_sent_once_with_its_last_value() -> None:
    async with Rig() as rig:
        entity = Entity(client_id="a")
        for rate in (1.0, 2.0):
            rig.definitions.put(entity, {"producer_byte_rate": rate})
            rig.feed.quota_changed(code(*entity))
        assert await rig.turn() == [QuotaBatch({code(*entity): {"producer_byte_rate": 2.0}}, complete=True)]


async def test_removed_quota_has_no_limits() -> None:
    async with Rig(1) as rig:
        entity = Entity(client_id="c0")
        rig.definitions.put(entity, {})
        rig.feed.quota_changed(code(*entity))
        assert await rig.turn() == [QuotaBatch({code(*entity): {}}, complete=True)]


async def test_worker_is_told_what_holds_and_no_times() -> None:
    rig = Rig(1)
    rig.definitions.elapse(datetime(2026, 12, 5, 12, tzinfo=UTC))
    for client_id, day in (("c0", "sat"), ("c1", "sun")):  # it is a Saturday
        rig.definitions.put(Entity(client_id=client_id, when=f"hours={day}"), {"producer_byte_rate": 9.0})
    async with rig:
        entries: dict[str, Mapping[str, float]] = {}
        for message in rig.sent:
            entries |= message.entries if isinstance(message, QuotaBatch) else {}
        assert entries == {code(None, "c0"): {"producer_byte_rate": 9.0}, code(None, "c1"): {}}
        rig.definitions.changed = rig.feed.quota_changed
        rig.definitions.elapse(datetime(2026, 12, 6, 12, tzinfo=UTC))
        (batch,) = await rig.turn()
        assert batch == QuotaBatch(
            {code(None, "c0"): RATE, code(None, "c1"): {"producer_byte_rate": 9.0}}, complete=True
        )


async def test_response_follows_the_quota_that_it_is_about() -> None:
    async with Rig() as rig:
        rig.feed.respond(1, b"altered")
        rig.feed.quota_changed("-=:a")
        assert [type(message) for message in await rig.turn()] == [QuotaBatch, Response]


async def test_outcomes_are_made_portable() -> None:
    async with Rig() as rig:
        plan = Planned(AlterRequest(1000, True, [(("t", 0), (1, 2))]), {("t", 0): (1,)}, True, 7)
        for outcome in (
            bytearray(b"x"),
            Forward(45, b"f", plan),
            PeerError("why", "so"),
            RuntimeError("a bug"),
        ):
            rig.feed.respond(1, outcome)
        response, forwarded, *refusals = await rig.turn()
        assert response == Response(1, b"x")
        assert isinstance(forwarded, Forwarded)
        assert (forwarded.number, forwarded.api_key, forwarded.frame) == (1, 45, b"f")
        assert plan_of(forwarded.plan) == plan
        assert refusals == [Refusal(1, "why", "so"), Refusal(1, "internal", "RuntimeError")]


async def test_moves_are_sent_as_differences() -> None:
    async with Rig() as rig:
        rig.moves.moves = MappingProxyType({("t", 0): MOVE, ("t", 1): MOVE})
        rig.feed.wake()
        assert await rig.turn() == [Moves({("t", 0): MOVE, ("t", 1): MOVE})]
        rig.moves.moves = MappingProxyType({("t", 1): MOVE})
        rig.feed.wake()
        assert await rig.turn() == [Moves({("t", 0): None})]


async def test_settings_are_sent_when_they_have_changed() -> None:
    async with Rig() as rig:
        rig.state.config = config = Config(warnings=("another",))
        rig.state.enforcing = False
        rig.feed.read_certificates()
        assert await rig.turn() == [Configure(config), Enforce(on=False), ReadCertificates()]


async def test_learned_broker_is_sent() -> None:
    async with Rig() as rig:
        rig.brokers.learn(2, "127.0.0.1", 9)
        rig.feed.wake()
        (message,) = await rig.turn()
        assert isinstance(message, Brokers)
        assert message.known.addresses == {2: Address("127.0.0.1", 9)}
