"""A member's requests that the holder decides on: the same outcome as there, and what holds when a response is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.msgpack import decode, encode

from protocol.messages.reassignments import Outcome
from proxy.config import ReassignmentSettings
from proxy.control.reassign.topic_place import (
    Conclude,
    Concluded,
    Forwarding,
    HolderService,
    Plan,
    PlannedThere,
    Refused,
)
from proxy.fleet.calls import BUSY, NoResponseError
from tests.support.executor_world import World
from tests.support.journal_topics import SimulatedTopic
from tests.support.reassigned_cluster import SimulatedCluster

ONE, TWO = ("t", 0), ("t", 1)
NOT_CONTROLLER, STORAGE_ERROR, UNKNOWN = 41, 56, 3


class Connection:
    """The fleet between a member and the holder's service."""

    def __init__(self, service: HolderService) -> None:
        self.service = service
        self.tenure = 0
        self.before: Callable[[bytes], bytes | None] = lambda _: None
        self.after: Callable[[bytes], bytes] = lambda response: response

    async def ask(self, content: bytes, seconds: float) -> bytes:
        assert seconds > 0
        response = self.before(content)
        return self.after(await self.service.respond(content) if response is None else response)


class Fleet:
    """A holder that executes, and a member."""

    def __init__(self, directory: Path) -> None:
        cluster, topic = SimulatedCluster(6), SimulatedTopic()
        for key in (ONE, TWO):
            cluster.create(key, (0, 1))
        settings = ReassignmentSettings(parallel_partition_count=1)
        self.holder = World(directory, cluster, settings, topic, tenure=1)
        self.member = World(directory, cluster, settings, topic, tenure=0)
        executor = self.holder.executor
        self.service = HolderService(
            self.holder.decisions(), lambda: executor.leads, lambda: self.holder.journal.state.sequence
        )
        self.connection = Connection(self.service)
        self.forwarding = Forwarding(
            self.member.decisions(),
            lambda: self.member.executor.leads,
            lambda: self.connection,
            self.member.journal,
        )
        self.member.decides = self.forwarding
        self.holder.round()

    def finish(self) -> None:
        """Carry everything out."""
        self.holder.run()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def lost(_response: bytes) -> bytes:
    raise NoResponseError("the connection to the holder has ended", sent=True)


def unsent(_content: bytes) -> bytes | None:
    raise NoResponseError("no holder of the fleet is known", sent=False)


def test_request_of_a_member_is_the_holders(fleet: Fleet) -> None:
    response = fleet.member.request((ONE, (2, 3)), (TWO, (2, 3)), (("nowhere", 0), (1, 2)))
    assert [(key, outcome.error_code) for key, outcome in response.partitions] == [
        (ONE, 0),
        (TWO, 0),
        (("nowhere", 0), UNKNOWN),
    ]
    assert fleet.member.sent == {ONE: (2, 0)}, "the first step goes over the caller's connection"
    assert set(fleet.member.journal.shown.moves) == {ONE, TWO}, "the caller may list it here at once"
    assert fleet.holder.woken == 1
    assert fleet.forwarding.forwarded == {"answered": 2}
    assert not fleet.service.plans
    assert fleet.member.stats.reassignment_requests == {"refused": 1}
    fleet.finish()
    for key in (ONE, TWO):
        assert fleet.holder.cluster.partitions[key].now().replicas == (2, 3)


def test_request_that_sends_no_step_is_decided_too(fleet: Fleet) -> None:
    assert fleet.member.request((ONE, (2, 3))).partitions == [(ONE, Outcome())]
    response = fleet.member.request((TWO, (2, 3)))  # one partition at a time
    assert not fleet.member.sent
    assert response.partitions == [(TWO, Outcome())]
    cancelled = fleet.member.request((TWO, None))
    assert cancelled.partitions == [(TWO, Outcome())]
    fleet.finish()
    assert fleet.holder.cluster.partitions[TWO].now().replicas == (0, 1)


def test_member_without_a_holder_has_callers_try_again(fleet: Fleet) -> None:
    fleet.connection.before = unsent
    response = fleet.member.request((ONE, (2, 3)))
    assert response.outcome.error_code == NOT_CONTROLLER
    assert "no holder of the fleet is known" in str(response.outcome.error_message)
    assert fleet.forwarding.forwarded == {"unanswered": 1}
    assert not fleet.holder.journal.state.entries


def test_holder_that_does_not_execute_yet_has_callers_try_again(fleet: Fleet) -> None:
    fleet.holder.tenure = 0
    fleet.holder.round()
    assert fleet.member.request((ONE, (2, 3))).outcome.error_code == NOT_CONTROLLER
    fleet.connection.tenure = 5  # this member is the holder, and executes only a moment later
    assert fleet.member.request((ONE, (2, 3))).outcome.error_code == NOT_CONTROLLER


def test_holder_without_a_journal_in_a_topic_is_named(fleet: Fleet) -> None:
    fleet.connection.before = lambda _content: BUSY
    response = fleet.member.request((ONE, (2, 3)))
    assert response.outcome.error_code == NOT_CONTROLLER
    assert "no journal in a topic" in str(response.outcome.error_message)


def test_response_to_a_plan_that_is_lost_leaves_no_move(fleet: Fleet) -> None:
    fleet.connection.after = lost
    assert fleet.member.request((ONE, (2, 3))).outcome.error_code == STORAGE_ERROR
    assert fleet.holder.journal.state.entries[ONE].asked is not None
    for _ in range(40):
        fleet.holder.round()
    assert not fleet.holder.journal.state.entries
    assert fleet.holder.stats.reassignment_ends == {"refused": 1}


def test_conclusion_that_is_lost_is_found_out_by_the_executor(fleet: Fleet) -> None:
    def unsent_conclusion(content: bytes) -> bytes | None:
        return unsent(content) if b"conclude" in content else None

    fleet.connection.before = unsent_conclusion
    assert fleet.member.request((ONE, (2, 3))).outcome.error_code == STORAGE_ERROR
    fleet.finish()
    assert fleet.holder.cluster.partitions[ONE].now().replicas == (2, 3), "the first step was under way"


def test_conclusion_of_an_unknown_plan_is_refused(fleet: Fleet) -> None:
    def other_holder(content: bytes) -> bytes | None:
        if b"conclude" in content:
            fleet.connection.service = HolderService(fleet.holder.decisions(), lambda: True, lambda: 0)
        return None

    fleet.connection.before = other_holder
    response = fleet.member.request((ONE, (2, 3)))
    assert response.outcome.error_code == STORAGE_ERROR
    assert "does not know the request" in str(response.outcome.error_message)


JUNK = [b"", b"\x01junk", b"\xc0" * 40, encode(PlannedThere(1, True, b"junk")), encode(Concluded(1, b"junk"))]


@pytest.mark.parametrize("content", [*JUNK, encode(Plan(b"junk")), encode(Conclude(2**64 - 1, b"junk"))])
async def test_question_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    service = HolderService(World(tmp_path, SimulatedCluster(3)).decisions(), lambda: True, lambda: 0)
    response = await service.respond(content)
    assert response == BUSY or decode(response)["type"] == "refused"
    assert not service.plans


@pytest.mark.parametrize(
    "response", [*JUNK, encode(Refused(2, "no")), encode({"type": "refused", "cause": 3})]
)
def test_response_that_cannot_be_read_is_a_refusal(fleet: Fleet, response: bytes) -> None:
    fleet.connection.before = lambda _content: response
    assert fleet.member.request((ONE, (2, 3))).outcome.error_code
