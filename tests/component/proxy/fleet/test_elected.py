"""The holder that a group chooses, with a group of one member in place of Kafka's."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors

from proxy.config import Address, FleetOptions
from proxy.events import Event, Tell, untold
from proxy.fleet.elected import TENURE_MS, Elected
from proxy.fleet.election import Lasting, Ruling, Statements, Term
from proxy.fleet.fleet import fleet_terms
from proxy.fleet.port import HolderPort
from proxy.fleet.secret import NO_SECRET, FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from proxy.topics.topic import Access
from quotas.sharing.lease_values import DEFAULT_KEY, LesseeId, Report
from tests.component.proxy.fleet.rig import until

OPTIONS = FleetOptions(name="a", members_max=4, bind=Address("127.0.0.1", 19070), group="g")
LASTING_MS = fleet_terms(OPTIONS).lasting_ms(TENURE_MS)
SECRET = b"s" * 32
STATEMENTS = Statements(SECRET, "g")


def lasting(committed: str | None) -> int:
    """How long leases may last by a commit."""
    assert committed is not None
    found = STATEMENTS.read_lasting(committed)
    assert found is not None, "it is signed"
    return found.ms


def said(lasting_ms: int) -> str:
    return STATEMENTS.write_lasting(Lasting(lasting_ms, Term(4, 2)), "b")


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
        self.member_id = ""
        self.generation = 0

    async def start(self) -> None:
        self._join()

    def _join(self) -> None:
        metadata = self._assignor.metadata(["g"])
        self.member_id, self.generation = "1", self.generation + 1
        given = self._assignor.assign(None, {"1": metadata})["1"]
        self._assignor.on_assignment(given)

    def request_rejoin(self) -> None:
        asyncio.get_running_loop().call_soon(self._join)

    async def stop(self) -> None:
        pass

    async def getmany(self, timeout_ms: int) -> dict[Any, Any]:
        await asyncio.sleep(min(timeout_ms, 10) / 1000)
        return {}

    async def fetch_committed_offsets(self, places: list[Any]) -> dict[Any, Any]:
        self._kafka.asked += 1
        committed = self._kafka.committed
        return {} if committed is None else {places[0]: SimpleNamespace(metadata=committed)}

    async def _do_commit_offsets(self, _: None, offsets: dict[Any, Any]) -> None:
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

        monkeypatch.setattr("proxy.fleet.elected.aiokafka.AIOKafkaConsumer", consumer)
        monkeypatch.setattr("proxy.fleet.elected.find", there)
        return found

    return made


@pytest.fixture
def secret(tmp_path: Path) -> FleetSecret:
    (tmp_path / "secret").write_bytes(SECRET)
    return FleetSecret(tmp_path / "secret")


@asynccontextmanager
async def elected(
    secret: FleetSecret = NO_SECRET, tell: Tell = untold, *, bound: bool = True
) -> AsyncIterator[tuple[Elected, HolderPort, FleetFigures]]:
    figures, terms = FleetFigures(), fleet_terms(OPTIONS)
    port = HolderPort(OPTIONS.members_max, secret, now_ms, figures)
    access = Access([("127.0.0.1", 1)])
    found = Elected(OPTIONS, access, port, lambda: terms, now_ms, figures, tell, secret=secret)
    if bound:
        found.bound()
    try:
        yield found, port, figures
    finally:
        await found.close()


@pytest.mark.parametrize(
    ("committed", "learns"),
    [
        (None, False),
        (said(0), False),
        (said(20_310), True),
        ("leases_ms=0 term=4 run=0000000000000002 holder=b", True),  # not signed
    ],
    ids=str,
)
async def test_holder_learns_for_as_long_as_its_predecessor_has_committed(
    kafka: Callable[[str | None], Kafka], secret: FleetSecret, committed: str | None, learns: bool
) -> None:
    coordinator = kafka(committed)
    async with elected(secret) as (_, port, _):
        await until(lambda: port.lessor is not None)
        assert lasting(coordinator.committed) == LASTING_MS
        view = port.view()
        assert view is not None
        assert view.learning is learns


async def test_holder_without_a_commit_of_its_own_leases_nothing(
    kafka: Callable[[str | None], Kafka], secret: FleetSecret
) -> None:
    coordinator = kafka(None)
    coordinator.refuses = True
    async with elected(secret) as (found, port, _):
        await until(lambda: coordinator.asked and found.address)
        await asyncio.sleep(0.3)
        assert port.lessor is None
        coordinator.refuses = False
        await until(lambda: port.lessor is not None)


async def test_holder_that_ends_leaves_word_of_its_leases(
    kafka: Callable[[str | None], Kafka], secret: FleetSecret
) -> None:
    coordinator = kafka(None)
    async with elected(secret) as (_, port, _):
        await until(lambda: port.lessor is not None)
    assert lasting(coordinator.committed) == 0
    async with elected(secret) as (_, port, _):
        await until(lambda: port.lessor is not None)
        assert port.lessor is not None
        port.lessor.report(Report(LesseeId("b", 1), 0, 1, 0, {}, {DEFAULT_KEY: 0.1}, 4), now_ms())
    assert 0 < lasting(coordinator.committed) < LASTING_MS


async def test_what_is_ignored_is_counted_and_said_once(
    secret: FleetSecret, caplog: pytest.LogCaptureFixture
) -> None:
    async with elected(secret, bound=False) as (found, _, figures):
        for _ in range(3):
            found.unsigned("claim", 2, "x-1")
            found.unsigned("ruling")
        await until(lambda: figures.unsigned == {"claim": 6, "ruling": 3})
    assert sum("ignored in the group of the fleet" in message for message in caplog.messages) == 2


async def test_holder_that_moves_is_told_and_the_first_is_not() -> None:
    told: list[Event] = []
    # There is no broker, so that nothing else rules.
    async with elected(tell=told.append, bound=False) as (found, _, _):
        for name in ("b", "b", "c", ""):
            found.ruled(Ruling(name, Address("10.0.0.2", 1) if name else None, Term(1, 1)), mine=False)
        await until(lambda: len(told) == 2)
    assert [event.text for event in told] == [
        "c is the fleet's holder now, after b.",
        "The fleet has no holder, after c.",
    ]
