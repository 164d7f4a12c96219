"""The membership of the group, with a consumer that stands in: what it says, how often it tries, when it joins anew."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import pytest
from aiokafka import TopicPartition, errors
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import Address, FleetOptions
from proxy.events import Event, Tell, untold
from proxy.fleet import HolderPort
from proxy.fleet.elected import (
    OTHER_VERSION,
    SILENCE_MS,
    TENURE_MS,
    UNSIGNED,
    Assignor,
    Elected,
    FleetGroup,
    decoded_metadata,
    own_assignment,
)
from proxy.fleet.election import (
    NO_TERM,
    Claim,
    Lasting,
    Past,
    Roster,
    Ruling,
    Said,
    Statements,
    Term,
    write_roster,
)
from proxy.fleet.fleet import fleet_terms
from proxy.fleet.messages import NONCE_BYTES
from proxy.fleet.secret import NO_SECRET, FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from proxy.topics.records import Problem
from proxy.topics.topic import Access, Found, ProblemError
from quotas.definitions.definitions import Definitions
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import DEFAULT_KEY, LesseeId, Report
from tests.component.proxy.fleet.rig import until

GROUP = "__sluice"
CANNOT = "the group of the fleet cannot be used"
FAILED = 20
SECRET = b"s" * 32
SIGNED = Statements(SECRET, GROUP)
NONCE = bytes(NONCE_BYTES)
A, B = Address("h", 1), Address("h", 2)
IN_3 = Ruling("a", A, Term(3, 5), Term(2, 9))
B_IN_4 = Ruling("b", B, Term(4, 6), Term(3, 5))
NONE = Ruling("", None, NO_TERM)
RUN = 0x1A


class Consumer:
    """aiokafka's, as far as the group uses it; the group's leader is this test, and it fails as told."""

    made: ClassVar[list["Consumer"]]
    owns = True
    statements = Statements(b"", GROUP)
    committed_text: str | None = None
    rebalancing = 0  # of the next descriptions of the group, this many
    fail: Callable[[], BaseException | None] = staticmethod(lambda: None)

    def __init__(self, *_: object, partition_assignment_strategy: list[Any], **__: object) -> None:
        type(self).made.append(self)
        self.assignor = partition_assignment_strategy[0]
        self._client = self._coordinator = self
        self.member_id = ""
        self.generation = 0
        self.rejoins = 0
        self.claim: Claim | None = None
        self.words: list[str] = []  # committed
        self.asked: list[object] = []  # other requests

    def join(self) -> None:
        """Begin a generation, with this member's claim."""
        said = self.assignor.metadata([GROUP]).user_data
        self.member_id = self.member_id or f"id-{len(self.made)}"
        self.generation += 1
        self.claim = self.statements.read_claim(said, self.member_id)

    def rule(self, ruling: Ruling, *, mine: bool) -> None:
        """Have the leader rule."""
        assert self.claim is not None
        self.say(self.statements.write_ruling([(ruling, mine)], self.member_id, self.claim.nonce))

    def say(self, data: bytes) -> None:
        """Have the leader say anything."""
        self.assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [], data))

    async def start(self) -> None:
        self.join()
        self.rule(IN_3, mine=self.owns)

    async def stop(self) -> None: ...

    async def close(self) -> None: ...

    async def getmany(self, timeout_ms: int) -> dict[str, object]:
        await asyncio.sleep(0.002)
        return {}

    async def committed(self, _: object) -> None:
        if (error := self.fail()) is not None:
            raise error

    async def _do_commit_offsets(self, _: None, offsets: dict[TopicPartition, Any]) -> None:
        await self.committed(offsets)
        self.words += [each.metadata for each in offsets.values()]

    async def _send_req(self, request: Any) -> object:
        self.asked.append(request)
        assigned = ConsumerProtocolMemberAssignment(0, [(GROUP, [0])], b"").encode()
        other = ConsumerProtocolMemberAssignment(0, [], b"").encode()
        members = [
            ("id-b", "c", "h", b"", other),
            ("id-a", "c", "h", b"", assigned),
            ("id-c", "c", "h", b"", b""),
        ]
        if self.rebalancing:  # as Kafka describes a group then
            self.rebalancing -= 1
            members = [(member, name, host, b"", b"") for member, name, host, *_ in members]
        return SimpleNamespace(groups=[(0, GROUP, "Stable", "consumer", "p", members)], error_code=0)

    def request_rejoin(self) -> None:
        """Kafka begins another generation."""
        self.rejoins += 1
        self.join()
        self.rule(IN_3, mine=self.owns)

    async def fetch_committed_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, object]:
        if self.committed_text is None:
            return {}
        return {places[0]: SimpleNamespace(metadata=self.committed_text)}


class Alone(Consumer):
    """The one member of its group, so its leader too; what it commits stays for the next one."""

    def join(self) -> None:
        metadata = self.assignor.metadata([GROUP])
        self.member_id, self.generation = "1", self.generation + 1
        self.assignor.on_assignment(self.assignor.assign(None, {"1": metadata})["1"])

    async def start(self) -> None:
        self.join()

    def request_rejoin(self) -> None:
        asyncio.get_running_loop().call_soon(self.join)

    async def _do_commit_offsets(self, _: None, offsets: dict[TopicPartition, Any]) -> None:
        await super()._do_commit_offsets(_, offsets)
        type(self).committed_text = self.words[-1]


class Member:
    """A membership of the group, and what it says; its clock stands still unless it is the real one."""

    def __init__(self, consumer: type[Consumer], secret: FleetSecret, *, real_time: bool) -> None:
        self._consumer = consumer
        self._real_time = real_time
        self.clock_ms = 0
        self.problems: list[Problem | None] = []
        self.rulings: list[Ruling] = []
        self.learning_ms: list[int] = []
        self.ignored: list[str] = []
        self.rosters: list[Roster] = []
        self.group = FleetGroup(Access([]), GROUP, "a", 5000, 20_310, self, self.now_ms, RUN, secret)

    def now_ms(self) -> int:
        return now_ms() if self._real_time else self.clock_ms

    @property
    def one(self) -> Consumer:
        """The group's first consumer."""
        return self._consumer.made[0]

    def unsigned(self, what: str, count: int = 1, member: str = "") -> None:
        self.ignored += [what] * count

    def ruled(self, said: Sequence[Said]) -> None:
        self.rulings += [ruling for ruling, _ in said]

    def confirmed(self, part: int, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        self.learning_ms.append(learning_ms)
        self.rosters.append(roster)

    def group_problem(self, problem: Problem | None) -> None:
        self.problems.append(problem)

    async def confirms(self) -> None:
        """Wait until it is confirmed as the holder once more."""
        before = len(self.rosters)
        await until(lambda: len(self.rosters) > before)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> type[Consumer]:
    async def find(*_: object) -> Found:
        return Found(b"0" * 16, None)

    class Own(Consumer):
        made: ClassVar[list[Consumer]] = []

    monkeypatch.setattr("proxy.fleet.elected.aiokafka.AIOKafkaConsumer", Own)
    monkeypatch.setattr("proxy.fleet.elected.find", find)
    monkeypatch.setattr("proxy.fleet.elected.PAUSE_SECONDS_MIN", 0.001)
    monkeypatch.setattr("proxy.fleet.elected.PAUSE_SECONDS_MAX", 0.001)
    return Own


@pytest.fixture
def alone(consumer: type[Consumer], monkeypatch: pytest.MonkeyPatch) -> type[Alone]:
    class Own(Alone):
        made: ClassVar[list[Consumer]] = []

    monkeypatch.setattr("proxy.fleet.elected.aiokafka.AIOKafkaConsumer", Own)
    return Own


@pytest.fixture
def secret(tmp_path: Path, consumer: type[Consumer]) -> FleetSecret:
    """The fleet's secret, with which the leader signs too."""
    (tmp_path / "secret").write_bytes(SECRET)
    consumer.statements = SIGNED
    return FleetSecret(tmp_path / "secret")


class Join(Protocol):
    """Makes members, which end with the test."""

    def __call__(self, secret: FleetSecret = NO_SECRET, *, real_time: bool = False) -> Member: ...


@pytest.fixture
async def join(consumer: type[Consumer]) -> AsyncIterator[Join]:
    tasks: list[asyncio.Task[None]] = []

    def joined(secret: FleetSecret = NO_SECRET, *, real_time: bool = False) -> Member:
        member = Member(consumer, secret, real_time=real_time)
        tasks.append(asyncio.create_task(member.group.run()))
        return member

    yield joined
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_holder_whose_commits_are_lost_joins_anew_and_so_makes_its_topic_again(
    consumer: type[Consumer], join: Join
) -> None:
    a = join()

    def lost() -> BaseException:
        a.clock_ms += 4000
        return TimeoutError()

    consumer.fail = staticmethod(lost)
    await until(lambda: len(consumer.made) > 2)
    assert a.clock_ms > SILENCE_MS
    assert {problem.cause for problem in a.problems if problem is not None} == {"unreachable"}
    consumer.fail = staticmethod(lambda: None)
    await until(lambda: a.rosters)
    await until(lambda: a.problems[-1] is None)


async def test_member_that_is_not_the_holder_notices_that_the_coordinator_is_away(
    consumer: type[Consumer], join: Join
) -> None:
    consumer.owns = False
    a = join()

    def lost() -> BaseException:
        a.clock_ms += 1000
        return TimeoutError()

    consumer.fail = staticmethod(lost)
    await until(lambda: a.problems and a.problems[-1] is not None)
    assert not a.rosters


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            errors.GroupAuthorizationFailedError(GROUP),
            Problem("denied", f"an ACL denies Read on group {GROUP} to Sluice's own user"),
        ),
        (errors.InconsistentGroupProtocolError(), Problem("version", OTHER_VERSION)),
    ],
    ids=["missing right", "members of another version"],
)
async def test_refusal_of_the_coordinator_is_named(
    consumer: type[Consumer], join: Join, error: BaseException, problem: Problem
) -> None:
    consumer.fail = staticmethod(lambda: error)
    a = join()
    await until(lambda: problem in a.problems)


async def test_unsigned_ruling_is_a_problem_and_changes_nothing_until_the_next_one(
    secret: FleetSecret, join: Join
) -> None:
    a = join(secret)
    await a.confirms()
    one, genuine = a.one, len(a.rulings)
    forged = Ruling("x", B, Term(2**32 - 1, 1))
    a.clock_ms += 2000
    unsigned = Statements(b"", GROUP).write_ruling([(forged, False)], one.member_id, NONCE)
    for data in (b"", b"\x02junk", unsigned):
        one.join()
        one.say(data)
    assert a.ignored == ["ruling"] * 3
    assert a.problems[-1] == Problem("unsigned", UNSIGNED)
    await a.confirms()  # it is still the holder, though it has no partition
    assert a.problems[-1] == Problem("unsigned", UNSIGNED)
    one.join()
    one.rule(B_IN_4, mine=False)
    assert a.problems[-1:] == [None]
    assert a.rulings[genuine:] == [B_IN_4]


async def test_member_that_has_missed_a_generation_stops_at_an_unsigned_ruling(
    secret: FleetSecret, join: Join
) -> None:
    a = join(secret)
    await a.confirms()
    a.one.generation += 1  # another may have been chosen there
    a.one.join()
    a.one.say(b"")
    assert a.rulings[-1] == NONE
    before = len(a.rosters)
    a.clock_ms += 10_000
    await asyncio.sleep(0.1)
    assert len(a.rosters) == before
    # And what it follows then without a gap does not make it the holder again.
    a.one.join()
    a.one.say(b"")
    assert a.rulings[-1] == NONE


async def test_ruling_that_is_sent_again_is_not_taken(secret: FleetSecret, join: Join) -> None:
    a = join(secret)
    await a.confirms()
    one = a.one
    assert one.claim is not None
    old = one.statements.write_ruling([(IN_3, True)], one.member_id, one.claim.nonce)
    one.join()
    one.rule(B_IN_4, mine=False)
    one.join()
    one.say(old)
    assert a.ignored == ["ruling"]
    assert a.rulings[-1] == B_IN_4


async def test_first_claim_is_made_again_where_no_member_can_be_chosen(
    secret: FleetSecret, join: Join
) -> None:
    a = join(secret)
    await a.group.advertise(A)
    await a.confirms()
    first = a.one.claim
    assert first is not None
    assert not first.bound
    assert a.one.rejoins == 0, "there is a holder"
    for _ in range(2):
        a.one.rule(NONE, mine=False)
        assert a.one.rejoins == 1
        assert a.one.claim is not None
        assert a.one.claim.bound


@pytest.mark.parametrize(
    ("signer", "term", "learning_ms", "ignored"),
    [
        (SIGNED, Term(2, 9), 0, []),
        (Statements(b"", GROUP), Term(2, 9), 20_310, ["commit"]),
        (Statements(SECRET, "__other"), Term(2, 9), 20_310, ["commit"]),
        (SIGNED, Term(1, 9), 20_310, []),  # an earlier one, sent again
    ],
)
async def test_commit_is_believed_if_it_is_the_predecessors(
    consumer: type[Consumer],
    secret: FleetSecret,
    join: Join,
    signer: Statements,
    term: Term,
    learning_ms: int,
    ignored: list[str],
) -> None:
    named = frozenset((5, 6))
    consumer.committed_text = signer.write_lasting(Lasting(0, term), "b", write_roster(9, named))
    a = join(secret)
    await a.confirms()
    assert (a.learning_ms[0], a.ignored) == (learning_ms, ignored)
    # Only the roster of a commit that is believed says for whom to wait.
    assert a.rosters[0].begun == (Past(0, None) if learning_ms else Past(9, named))
    assert consumer.statements.read_lasting(a.one.words[0]) == Lasting(20_310, IN_3.term)


async def test_changed_secret_makes_it_join_anew(
    consumer: type[Consumer], secret: FleetSecret, join: Join, tmp_path: Path
) -> None:
    a = join(secret)
    await a.confirms()
    (tmp_path / "secret").write_bytes(b"t" * 32)
    consumer.statements = Statements(b"t" * 32, GROUP)
    a.clock_ms += 5000
    await until(lambda: len(consumer.made) == 2)
    await until(lambda: a.rulings and not a.ignored)


def test_leader_ignores_claims_that_are_not_of_their_senders() -> None:
    statements, ignored = SIGNED, list[str]()
    assignor = Assignor(GROUP, 1, statements, lambda: b"", lambda _: None, ignored.extend)
    genuine = Claim("a", A, 5, 3, Term(3, 5), NONCE)
    huge = Claim("x", B, 1, 2**32 - 1, NO_TERM, NONCE)
    said = {
        "id-a": statements.write_claim(genuine, "id-a"),
        "id-replays": statements.write_claim(genuine, "id-a"),
        "id-unsigned": Statements(b"", GROUP).write_claim(huge, "id-unsigned"),
        "id-old": b"\x01\x01x\x01h\0\1" + (2**62).to_bytes(8),
        "id-junk": b"",
    }
    members = {member: ConsumerProtocolMemberMetadata(0, [GROUP], data) for member, data in said.items()}
    given = assignor.assign(None, members)
    assert [member for member, one in given.items() if one.assignment] == ["id-a"]
    found = statements.read_ruling(given["id-a"].user_data, "id-a", NONCE)
    assert found == [(Ruling("a", A, Term(3, 5), Term(3, 5)), True)]
    assert ignored == ["id-replays", "id-unsigned", "id-old", "id-junk"]
    assert all(given[member].user_data == b"" for member in ignored)


async def test_bug_ends_no_membership(
    consumer: type[Consumer], join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    faults = iter([ValueError("of a library"), None])
    consumer.fail = staticmethod(lambda: next(faults, None))
    a = join()
    await a.confirms()
    assert Problem("failed", "internal error: of a library") in a.problems
    assert "a membership of the group failed" in caplog.messages


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

    monkeypatch.setattr("proxy.fleet.elected.find", find)
    async with elected(bound=False) as (_, port, figures):
        await until(lambda: attempts > FAILED and figures.group_problem == "unreachable", 20)
        assert caplog.messages.count(CANNOT) == 1
        away = False
        await until(lambda: port.lessor is not None and not figures.group_problem, 20)
        assert caplog.messages.count("the group of the fleet can be used again") == 1


@given(st.binary(max_size=60) | st.binary(max_size=60).map(b"\0\0\0\0\0\1".__add__) | st.just(bytes(5000)))
def test_any_words_of_others_are_decoded_or_nothing(data: bytes) -> None:
    """Aiokafka itself raises errors for them, which would end the membership."""
    metadata = decoded_metadata(data)
    assert isinstance(metadata.user_data or b"", bytes)
    assignment = own_assignment(data, {GROUP})
    assert assignment.assignment in ([], [(GROUP, [0])])
    assert isinstance(assignment.user_data, bytes)


def test_partitions_of_others_are_not_taken() -> None:
    given_ = [("other", [0]), (GROUP, [0, 5]), (GROUP, [0])]
    data = ConsumerProtocolMemberAssignment(0, given_, b"ruling").encode()
    assert own_assignment(data, {GROUP}) == ConsumerProtocolMemberAssignment(0, [(GROUP, [0])], b"ruling")


async def test_holder_commits_to_whom_it_leases(join: Join) -> None:
    a = join(real_time=True)
    await a.confirms()
    first = a.rosters[0]
    assert a.one.words[0].startswith("leases_ms=20310 term=3 ")  # there was no commit
    await a.group.enlist(0, first, Roster(first.begun, 1, frozenset((RUN, 7))))
    await until(lambda: a.rosters[-1].number == 1)
    assert a.one.words[-1].startswith("leases_ms=20310 roster=1a:7,1a term=3 ")
    await a.group.enlist(
        0, Roster(Past(9, None), 5, None), Roster(Past(9, None), 5, None)
    )  # of another lessor
    await asyncio.sleep(0.05)
    assert a.rosters[-1].number == 1


async def test_holder_goes_on_over_generations_in_which_no_commit_is_believed(
    consumer: type[Consumer], join: Join
) -> None:
    a = join(real_time=True)
    await a.confirms()
    first = a.rosters[0]
    await a.group.enlist(0, first, Roster(first.begun, 1, frozenset((RUN, 7))))
    await until(lambda: a.rosters[-1].number == 1)
    consumer.committed_text = "leases_ms=0 term=3 run=0000000000000005 holder=a"  # as without a secret
    a.one.request_rejoin()
    await a.confirms()
    assert a.rosters[-1].begun is first.begun  # the same lessor, which knows its lessees
    a.one.generation += 1  # this one it has missed: another member may have been the holder
    a.one.request_rejoin()
    await until(lambda: a.rosters[-1].begun is not first.begun)


async def test_newcomer_waits_while_an_earlier_commit_may_still_come(
    consumer: type[Consumer], join: Join
) -> None:
    a = join(real_time=True)
    await a.confirms()
    first = a.rosters[0]
    before = len(a.rosters)
    newcomers: list[asyncio.Task[None]] = []

    def unheard() -> BaseException | None:
        if newcomers:
            return None
        newcomer = a.group.enlist(0, first, Roster(first.begun, 2, frozenset((1, 2))))
        newcomers.append(asyncio.get_running_loop().create_task(newcomer))
        unknown: BaseException = errors.RequestTimedOutError()
        return unknown

    consumer.fail = staticmethod(unheard)
    await a.group.enlist(0, first, Roster(first.begun, 1, frozenset((1,))))
    await until(lambda: a.rosters[-1].number == 2)
    # The second one was committed, but the first might have come after it; in the next generation it cannot.
    assert [roster.number for roster in a.rosters[before:]] == [1, 2]
    assert a.one.generation == 2


async def test_holder_that_has_ended_is_removed_from_the_group(consumer: type[Consumer], join: Join) -> None:
    consumer.owns = False
    a = join(real_time=True)
    await until(lambda: a.rulings and a.problems)
    await asyncio.sleep(0.05)
    await a.group.expel(Address("elsewhere", 1))
    assert not a.one.asked
    await a.group.expel(A)
    described, left = a.one.asked
    assert isinstance(described, DescribeGroupsRequest)
    assert isinstance(left, LeaveGroupRequest)
    assert vars(left)["_member_id"] == "id-a"
    assert a.one.generation == 2


async def test_holder_that_has_ended_is_removed_when_the_group_is_stable_again(
    consumer: type[Consumer], join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.fleet.elected.EXPEL_PAUSES_SECONDS", (0.0,) * 4)
    consumer.owns = False
    a = join(real_time=True)
    await until(lambda: a.rulings and a.problems)
    a.one.rebalancing = 2
    await a.group.expel(A)
    assert [type(request) for request in a.one.asked] == [DescribeGroupsRequest] * 3 + [LeaveGroupRequest]
    assert a.one.rejoins == 1, "this member joins again after the removal, not before"


async def test_member_joins_again_if_the_holder_that_has_ended_cannot_be_removed(
    consumer: type[Consumer], join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.fleet.elected.EXPEL_PAUSES_SECONDS", (0.0,) * 4)
    consumer.owns = False
    a = join(real_time=True)
    await until(lambda: a.rulings and a.problems)
    a.one.rebalancing = 100
    await a.group.expel(A)
    assert [type(request) for request in a.one.asked] == [DescribeGroupsRequest] * 4
    assert a.one.rejoins == 1


async def test_holder_is_not_removed_after_another_ruling(consumer: type[Consumer], join: Join) -> None:
    consumer.owns = False
    a = join(real_time=True)
    await until(lambda: a.rulings and a.problems)
    a.one.rebalancing = 100
    expelling = asyncio.create_task(a.group.expel(A))
    await until(lambda: a.one.asked)
    a.one.join()
    a.one.rule(B_IN_4, mine=False)
    await expelling
    assert not any(isinstance(request, LeaveGroupRequest) for request in a.one.asked)
    assert a.one.rejoins == 0


# The member that the group chooses.

OPTIONS = FleetOptions(name="a", members_max=4, bind=Address("127.0.0.1", 19070), group=GROUP)
LASTING_MS = fleet_terms(OPTIONS).lasting_ms(TENURE_MS)


@asynccontextmanager
async def elected(
    secret: FleetSecret = NO_SECRET, tell: Tell = untold, *, bound: bool = True
) -> AsyncIterator[tuple[Elected, HolderPort, FleetFigures]]:
    figures, terms = FleetFigures(), fleet_terms(OPTIONS)
    port = HolderPort(OPTIONS.members_max, secret, now_ms, figures)
    access = Access([("127.0.0.1", 1)])
    capacities = [Capacities(Definitions)]
    found = Elected(OPTIONS, access, port, lambda: terms, capacities, now_ms, figures, tell, secret=secret)
    if bound:
        found.bound()
    try:
        yield found, port, figures
    finally:
        await found.close()


def lasting(committed: str | None) -> int:
    """How long leases may last by a commit."""
    assert committed is not None
    found = SIGNED.read_lasting(committed)
    assert found is not None, "it is signed"
    return found.ms


def said(lasting_ms: int) -> str:
    return SIGNED.write_lasting(Lasting(lasting_ms, Term(4, 2)), "b")


@pytest.mark.parametrize(
    ("committed", "learns"),
    [
        (None, False),
        (said(0), False),
        (said(20_310), True),
        ("leases_ms=0 term=4 run=0000000000000002 holder=b", True),  # not signed
    ],
)
async def test_holder_learns_for_as_long_as_its_predecessor_has_committed(
    alone: type[Alone], secret: FleetSecret, committed: str | None, learns: bool
) -> None:
    alone.committed_text = committed
    async with elected(secret) as (_, port, _):
        await until(lambda: port.lessor is not None)
        assert lasting(alone.committed_text) == LASTING_MS
        view = port.view()
        assert view is not None
        assert view.learning is learns


async def test_holder_without_a_commit_of_its_own_leases_nothing(
    alone: type[Alone], secret: FleetSecret
) -> None:
    alone.fail = staticmethod(errors.CommitFailedError)
    async with elected(secret) as (found, port, _):
        await until(lambda: found.addresses[0])
        await asyncio.sleep(0.3)
        assert port.lessor is None
        alone.fail = staticmethod(lambda: None)
        await until(lambda: port.lessor is not None)


async def test_holder_that_ends_leaves_word_of_its_leases(alone: type[Alone], secret: FleetSecret) -> None:
    async with elected(secret) as (_, port, _):
        await until(lambda: port.lessor is not None)
    assert lasting(alone.committed_text) == 0
    async with elected(secret) as (_, port, _):
        await until(lambda: port.lessor is not None)
        assert port.lessor is not None
        port.lessor.report(Report(LesseeId("b", 1), 0, 1, 0, {}, {DEFAULT_KEY: 0.1}, 4), now_ms())
    assert 0 < lasting(alone.committed_text) < LASTING_MS


async def test_what_is_ignored_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with elected(bound=False) as (found, _, figures):
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
            found.ruled([(Ruling(name, Address("10.0.0.2", 1) if name else None, Term(1, 1)), False)])
        await until(lambda: len(told) == 2)
    assert [event.text for event in told] == [
        "c is the fleet's holder now, after b.",
        "The fleet has no holder, after c.",
    ]
