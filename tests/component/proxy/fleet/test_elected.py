"""The holder that a group chooses, with a group of one member in place of Kafka's."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors

from proxy.clock import now_ms
from proxy.config import Address, FleetOptions
from proxy.events import Event
from proxy.fleet.elected import TENURE_MS, Elected
from proxy.fleet.fleet import fleet_terms
from proxy.fleet.port import HolderPort
from proxy.fleet.standing import Ruling
from proxy.metrics.fleet import FleetFigures
from proxy.topic_log.access import Access
from quotas.sharing.lease_values import DEFAULT_KEY, LesseeId, Report

OPTIONS = FleetOptions(name="a", members_max=4, bind=Address("127.0.0.1", 19070), group="g")
LASTING_MS = fleet_terms(OPTIONS).lasting_ms(TENURE_MS)
LASTING = f"leases_ms={LASTING_MS} holder=a"


class Kafka:
    """What the group's coordinator knows; `refuses`: commits of an earlier generation."""

    def __init__(self, committed: str | None) -> None:
        self.committed = committed
        self.refuses = False
        self.asked = 0


class Consumer:
    """The one member of a group, as far as `FleetGroup` uses aiokafka's."""

    def __init__(self, kafka: Kafka, assignor: Any) -> None:
        self._kafka = kafka
        self._assignor = assignor
        self._coordinator = self
        self._client = SimpleNamespace(close=self.stop)
        self._assigned: set[Any] = set()

    async def start(self) -> None:
        metadata = self._assignor.metadata(["g"])
        given = self._assignor.assign(None, {"1": metadata})["1"]
        self._assigned = {(topic, number) for topic, numbers in given.assignment for number in numbers}
        self._assignor.on_assignment(given)

    async def stop(self) -> None:
        pass

    async def getmany(self, timeout_ms: int) -> dict[Any, Any]:
        await asyncio.sleep(min(timeout_ms, 10) / 1000)
        return {}

    def assignment(self) -> set[Any]:
        return self._assigned

    async def fetch_committed_offsets(self, places: list[Any]) -> dict[Any, Any]:
        self._kafka.asked += 1
        committed = self._kafka.committed
        return {} if committed is None else {places[0]: SimpleNamespace(metadata=committed)}

    async def commit(self, offsets: dict[Any, Any]) -> None:
        if self._kafka.refuses:
            raise errors.CommitFailedError
        ((_, self._kafka.committed),) = offsets.values()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Kafka]:
    """Makes the coordinator, which has this commit."""

    def made(committed: str | None) -> Kafka:
        found = Kafka(committed)

        def consumer(*_: object, partition_assignment_strategy: list[Any], **__: object) -> Consumer:
            return Consumer(found, partition_assignment_strategy[0])

        async def there(*_: object) -> object:
            return object()

        monkeypatch.setattr("proxy.fleet.group.aiokafka.AIOKafkaConsumer", consumer)
        monkeypatch.setattr("proxy.fleet.group.find", there)
        return found

    return made


@asynccontextmanager
async def elected() -> AsyncIterator[tuple[Elected, HolderPort]]:
    figures = FleetFigures()
    port = HolderPort(OPTIONS.members_max, None, now_ms, figures)
    access = Access([("127.0.0.1", 1)])
    found = Elected(OPTIONS, access, port, lambda: fleet_terms(OPTIONS), now_ms, figures)
    found.bound()
    try:
        yield found, port
    finally:
        await found.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("committed", "learns"),
    [(None, False), ("leases_ms=0 holder=b", False), ("leases_ms=20310 holder=b", True), ("b", True)],
    ids=str,
)
async def test_holder_learns_for_as_long_as_its_predecessor_has_committed(
    kafka: Callable[[str | None], Kafka], committed: str | None, learns: bool
) -> None:
    coordinator = kafka(committed)
    async with elected() as (_, port):
        await until(lambda: port.lessor is not None)
        assert coordinator.committed == LASTING
        view = port.view()
        assert view is not None
        assert view.learning is learns


async def test_holder_without_a_commit_of_its_own_leases_nothing(
    kafka: Callable[[str | None], Kafka],
) -> None:
    coordinator = kafka(None)
    coordinator.refuses = True
    async with elected() as (found, port):
        await until(lambda: coordinator.asked and found.address)
        await asyncio.sleep(0.3)
        assert port.lessor is None
        coordinator.refuses = False
        await until(lambda: port.lessor is not None)


async def test_holder_that_ends_leaves_word_of_its_leases(kafka: Callable[[str | None], Kafka]) -> None:
    coordinator = kafka(None)
    async with elected() as (_, port):
        await until(lambda: port.lessor is not None)
    assert coordinator.committed == "leases_ms=0 holder=a"
    async with elected() as (_, port):
        await until(lambda: port.lessor is not None)
        assert port.lessor is not None
        port.lessor.report(Report(LesseeId("b", 1), 0, 1, 0, {}, {DEFAULT_KEY: 0.1}, 4), now_ms())
    assert coordinator.committed is not None
    left_ms = int(coordinator.committed.removeprefix("leases_ms=").removesuffix(" holder=a"))
    assert 0 < left_ms < LASTING_MS


async def test_holder_that_moves_is_told_and_the_first_is_not() -> None:
    told: list[Event] = []
    port = HolderPort(OPTIONS.members_max, None, now_ms, FleetFigures())
    access = Access([("127.0.0.1", 1)])  # no broker, so that nothing else rules
    terms = fleet_terms(OPTIONS)
    found = Elected(OPTIONS, access, port, lambda: terms, now_ms, FleetFigures(), told.append)
    try:
        for name in ("b", "b", "c", ""):
            found.ruled(Ruling(name, Address("10.0.0.2", 1) if name else None, 1), mine=False)
        await until(lambda: len(told) == 2)
    finally:
        await found.close()
    assert [event.text for event in told] == [
        "c is the fleet's holder now, after b.",
        "The fleet has no holder, after c.",
    ]
