"""The membership of the group, with a consumer that stands in: what it says, how often it tries, when it joins anew."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from aiokafka import TopicPartition, errors
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from proxy.clock import now_ms
from proxy.config import Address, FleetOptions
from proxy.fleet import HolderPort
from proxy.fleet.elected import Elected
from proxy.fleet.group import SILENCE_MS, UNREAD, FleetGroup
from proxy.fleet.standing import Ruling, write_ruling
from proxy.metrics.fleet import FleetFigures
from proxy.topic_log.access import Access
from proxy.topic_log.records import Problem
from proxy.topic_log.topic import Found, ProblemError
from quotas.sharing.lease_values import LeaseTerms
from tests.component.proxy.fleet.rig import until

GROUP = "__sluice"
CANNOT = "the group of the fleet cannot be used"
FAILED = 20


class Consumer:
    """aiokafka's, as far as the group uses it; it owns the partition or does not, and fails as told."""

    made: ClassVar[list["Consumer"]]
    owns = True
    fail: Callable[[], BaseException | None] = staticmethod(lambda: None)
    ruling = write_ruling(Ruling("a", Address("h", 1), 1))

    def __init__(self, *_: object, partition_assignment_strategy: list[Any], **__: object) -> None:
        type(self).made.append(self)
        self.assignor = partition_assignment_strategy[0]
        self._client = self._coordinator = self

    async def start(self) -> None:
        owned = [(GROUP, [0])] if self.owns else []
        self.assignor.on_assignment(ConsumerProtocolMemberAssignment(0, owned, self.ruling))

    async def stop(self) -> None: ...

    async def close(self) -> None: ...

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(GROUP, 0)} if self.owns else set()

    async def getmany(self, timeout_ms: int) -> dict[str, object]:
        await asyncio.sleep(0.002)
        return {}

    async def commit(self, _: object) -> None:
        if (error := self.fail()) is not None:
            raise error

    committed = commit

    async def fetch_committed_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, object]:
        return {}


class Heard:
    """What the group says."""

    def __init__(self) -> None:
        self.problems: list[Problem | None] = []
        self.rulings: list[Ruling] = []
        self.confirmations = 0

    def ruled(self, ruling: Ruling, mine: bool) -> None:
        self.rulings.append(ruling)

    def confirmed(self, sent_ms: int, learning_ms: int) -> None:
        self.confirmations += 1

    def group_problem(self, problem: Problem | None) -> None:
        self.problems.append(problem)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> type[Consumer]:
    async def find(*_: object) -> Found:
        return Found(b"0" * 16, None)

    class Own(Consumer):
        made: ClassVar[list[Consumer]] = []

    monkeypatch.setattr("proxy.fleet.group.aiokafka.AIOKafkaConsumer", Own)
    monkeypatch.setattr("proxy.fleet.group.find", find)
    monkeypatch.setattr("proxy.fleet.group.PAUSE_SECONDS_MIN", 0.001)
    monkeypatch.setattr("proxy.fleet.group.PAUSE_SECONDS_MAX", 0.001)
    return Own


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def member(heard: Heard, clock: Callable[[], int] = now_ms) -> asyncio.Task[None]:
    group = FleetGroup(Access([]), GROUP, "a", 5000, 20_310, heard, clock)
    return asyncio.create_task(group.run())


async def test_holder_whose_commits_are_lost_joins_anew_and_so_makes_its_topic_again(
    consumer: type[Consumer],
) -> None:
    heard, clock = Heard(), [0]

    def lost() -> BaseException:
        clock[0] += 4000
        return TimeoutError()

    consumer.fail = staticmethod(lost)
    task = member(heard, lambda: clock[0])
    await until(lambda: len(consumer.made) > 2)
    assert clock[0] > SILENCE_MS
    assert {problem.cause for problem in heard.problems if problem is not None} == {"unreachable"}
    consumer.fail = staticmethod(lambda: None)
    await until(lambda: heard.confirmations)
    await until(lambda: heard.problems[-1] is None)
    await ended(task)


async def test_member_that_is_not_the_holder_notices_that_the_coordinator_is_away(
    consumer: type[Consumer],
) -> None:
    heard, clock = Heard(), [0]
    consumer.owns = False

    def lost() -> BaseException:
        clock[0] += 1000
        return TimeoutError()

    consumer.fail = staticmethod(lost)
    task = member(heard, lambda: clock[0])
    await until(lambda: heard.problems and heard.problems[-1] is not None)
    assert not heard.confirmations
    await ended(task)


async def test_missing_right_on_the_group_is_named(consumer: type[Consumer]) -> None:
    heard = Heard()
    consumer.fail = staticmethod(lambda: errors.GroupAuthorizationFailedError(GROUP))
    task = member(heard)
    named = Problem("denied", f"an ACL denies Read on group {GROUP} to Sluice's own user")
    await until(lambda: named in heard.problems)
    await ended(task)


async def test_ruling_of_another_version_is_a_problem_until_one_can_be_read(
    consumer: type[Consumer],
) -> None:
    heard, clock = Heard(), [0]
    consumer.owns, consumer.ruling = False, b"\x02 something newer"
    task = member(heard, lambda: clock[0])
    await until(lambda: len(heard.problems) > 1)  # it is not taken back while the coordinator responds
    assert set(heard.problems) == {Problem("version", UNREAD)}
    nothing = Ruling("", None, 0)
    assert heard.rulings == [nothing]
    consumer.made[0].assignor.on_assignment(
        ConsumerProtocolMemberAssignment(0, [], write_ruling(Ruling("b", Address("h", 2), 2)))
    )
    assert heard.problems[-1] is None
    assert heard.rulings == [nothing, Ruling("b", Address("h", 2), 2)]
    await ended(task)


async def test_bug_ends_no_membership(consumer: type[Consumer], caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    faults = iter([ValueError("of a library"), None])
    consumer.fail = staticmethod(lambda: next(faults, None))
    task = member(heard)
    await until(lambda: heard.confirmations)
    assert Problem("failed", "internal error: of a library") in heard.problems
    assert "a membership of the group failed" in caplog.messages
    await ended(task)


async def test_brokers_that_are_away_for_long_cost_one_line_and_the_group_comes_back(
    monkeypatch: pytest.MonkeyPatch, consumer: type[Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    attempts = 0
    away = True

    async def find(*_: object) -> Found:
        nonlocal attempts
        attempts += 1
        if away:
            raise ProblemError("unreachable", f"attempt {attempts}: refused")
        return Found(b"0" * 16, None)

    monkeypatch.setattr("proxy.fleet.group.find", find)
    figures = FleetFigures()
    port = HolderPort(4, None, now_ms, figures)
    options = FleetOptions(name="a", bind=Address("127.0.0.1", 1))
    elected = Elected(options, Access([]), port, lambda: LeaseTerms(15_000, 1000, 4), now_ms, figures)
    try:
        await until(lambda: attempts > FAILED and figures.group_problem == "unreachable", 20)
        assert caplog.messages.count(CANNOT) == 1
        away = False
        await until(lambda: port.lessor is not None and not figures.group_problem, 20)
        assert caplog.messages.count("the group of the fleet can be used again") == 1
    finally:
        await elected.close()
