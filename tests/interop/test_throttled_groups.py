"""Throttling never costs a group member its membership, and never desynchronises a fetch session.

Every family's group of two runs throttled for 60 s under both policies, longer on a busy machine, without one
rebalance; beside them, in the same window, consumers with tiny fetches go through thousands of throttled ones
(KIP-219, KIP-227).
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.interop.conftest import available, present
from tests.interop.families import FAMILIES, Family
from tests.interop.fronts import Front, Measured, fill, front
from tests.interop.runs import Crowd, Run, options
from tests.support.tap import FETCH

PARTITIONS = 6
WINDOW_SECONDS = 60.0
WINDOW_SECONDS_MAX = 180.0  # of a machine that has other things to do
SHARED_SECONDS_MAX = 90.0
END_SECONDS_MAX = 60.0
BROKERS = 3
POLICIES = ("kip13", "schedule")
GROUP_BYTES_PER_SECOND = 200_000
SESSION_FETCH_BYTES = 2_000
# 2 KB a fetch: a throttled one each 20 ms, 3,000 a minute. kafka-python manages about 35 a second when thirty other
# clients share two cores with it, so its quota is lower.
SESSION_BYTES_PER_SECOND = {
    "java": 100_000,
    "librdkafka": 100_000,
    "franz-go": 100_000,
    "sarama": 100_000,
    "kafka-python": 40_000,
}
THROTTLED_FETCHES_MIN = 2_000
THROTTLED_FETCHES_KAFKA_PYTHON_MIN = 500


@dataclass(slots=True)
class Watched:
    """One family's members behind one front, and what they had told when the window began and ended."""

    front: Front
    client_id: str
    members: list[Run]
    before: list[list[object]] = field(default_factory=list)
    after: list[list[object]] = field(default_factory=list)
    throttled: float = 0.0

    def count_throttled(self) -> None:
        """Note how many Fetches were throttled: under schedule few of their short times are told."""
        name = "sluice_client_throttled_requests_total"
        self.throttled = self.front.sluice.metric(name, client_id=self.client_id, type="Fetch")

    def shared(self) -> bool:
        assigned = [run.events("assigned") for run in self.members]
        held = [events[-1].items("partitions") if events else [] for events in assigned]
        return all(held) and sorted(map(str, itertools.chain(*held))) == [str(p) for p in range(PARTITIONS)]

    def assignments(self) -> list[list[object]]:
        """Return what each member was assigned so far, one entry an assignment."""
        return [[event.items("partitions") for event in run.events("assigned")] for run in self.members]

    def describe(self) -> str:
        return "\n".join(run.describe() for run in self.members)


@dataclass(slots=True)
class Window(Measured):
    """What happened: groups by family and policy, sessions by family."""

    groups: dict[tuple[str, str], Watched] = field(default_factory=dict)
    sessions: dict[str, Watched] = field(default_factory=dict)


@pytest.fixture(scope="module")
def window(kafka: Cluster, create_topic: CreateTopic, interop_directory: Path) -> Iterator[Window]:
    """The 60 s, all families side by side."""
    directory = interop_directory / "window"
    directory.mkdir()
    with ExitStack() as stack:
        crowd = stack.enter_context(Crowd(directory))
        stock = create_topic(partitions=PARTITIONS)
        small = create_topic(partitions=PARTITIONS)
        for run in (
            fill(kafka, crowd, stock, PARTITIONS, 30_000, 1_000, 500),
            # As many outstanding as there are partitions: every batch has one record.
            fill(kafka, crowd, small, PARTITIONS, 15_000, SESSION_FETCH_BYTES, PARTITIONS),
        ):
            run.wait(END_SECONDS_MAX)
        found = Window([_front(stack, kafka, directory, policy) for policy in POLICIES])
        _start(found, crowd, stock, small, directory / "stop")
        crowd.until(lambda: all(group.shared() for group in found.groups.values()), SHARED_SECONDS_MAX)
        time.sleep(2.0)
        _observe(found)
        (directory / "stop").touch()
        for run in crowd.runs:
            run.wait(END_SECONDS_MAX)
        yield found


def _front(stack: ExitStack, kafka: Cluster, directory: Path, policy: str) -> Front:
    # kip13 with a budget for each broker, as KIP-13 has it; schedule with one over all of them.
    scope, share = ("broker", BROKERS) if policy == "kip13" else ("cluster", 1)
    quotas = {
        f"group-{family.name}": {"consumer_byte_rate": GROUP_BYTES_PER_SECOND // share} for family in FAMILIES
    } | {
        f"session-{name}": {"consumer_byte_rate": allowed // share}
        for name, allowed in SESSION_BYTES_PER_SECOND.items()
    }
    own = {"policy": policy, "scope": scope}
    return stack.enter_context(front(kafka.bootstrap(), directory, policy, quotas=own, client_quotas=quotas))


def _start(found: Window, crowd: Crowd, stock: str, small: str, stop_file: Path) -> None:
    for family in present():
        for place in found.fronts:
            client_id = f"group-{family.name}"
            group = f"{place.policy}-{family.name}-{stock}"
            words = options(
                place.bootstrap, client_id, stock, partitions=PARTITIONS, stop_file=str(stop_file)
            )
            members = [crowd.start(family, "consume", *words, "--group", group) for _ in range(2)]
            found.groups[family.name, place.policy] = Watched(place, client_id, members)
        if family.name in SESSION_BYTES_PER_SECOND:
            place, client_id = found.fronts[-1], f"session-{family.name}"
            words = options(
                place.bootstrap, client_id, small, partitions=PARTITIONS, stop_file=str(stop_file)
            )
            tiny = ["--fetch-bytes", str(SESSION_FETCH_BYTES)]
            found.sessions[family.name] = Watched(
                place, client_id, [crowd.start(family, "consume", *words, *tiny)]
            )


def _observe(found: Window) -> None:
    started = time.monotonic()
    with found.measuring():
        for group in found.groups.values():
            group.before = group.assignments()
        time.sleep(WINDOW_SECONDS)
        while time.monotonic() < started + WINDOW_SECONDS_MAX and not _enough(found.sessions):
            time.sleep(1.0)
        for group in found.groups.values():
            group.after = group.assignments()


def _enough(sessions: dict[str, Watched]) -> bool:
    for session in sessions.values():
        session.count_throttled()
    return all(session.throttled >= _least(name) for name, session in sessions.items())


def _least(family: str) -> int:
    return THROTTLED_FETCHES_KAFKA_PYTHON_MIN if family == "kafka-python" else THROTTLED_FETCHES_MIN


@pytest.mark.parametrize("policy", POLICIES)
def test_throttled_group_is_never_rebalanced(family: Family, policy: str, window: Window) -> None:
    group = window.groups[family.name, policy]
    assert group.before == group.after, group.describe()
    assert all(group.before), group.describe()
    key = (group.client_id, FETCH)
    then, now = window.before[policy][key], window.after[policy][key]
    assert now.throttled > then.throttled, f"never throttled: {now}"
    assert not now.session_errors
    # Wide: 200,000 B/s, fetches of up to a window at a time, and a busy machine.
    measured = window.rate(policy, key)
    assert 0.25 <= measured / GROUP_BYTES_PER_SECOND <= 1.5, f"{measured:.0f} B/s: {now}"
    for run in group.members:
        assert not run.events("error"), run.describe()


@pytest.mark.parametrize("name", SESSION_BYTES_PER_SECOND)
def test_thousands_of_throttled_fetches_keep_the_session(name: str, window: Window) -> None:
    available(next(family for family in FAMILIES if family.name == name))
    watched = window.sessions[name]
    seen = window.after["schedule"][watched.client_id, FETCH]
    assert watched.throttled >= _least(name), f"{watched.throttled}: {seen}"
    assert seen.emptied > 0, str(seen)
    assert not seen.session_errors, str(seen)
    run = watched.members[0]
    assert not run.events("error"), run.describe()
    for word in ("INVALID_FETCH_SESSION", "FETCH_SESSION_ID_NOT_FOUND", "FETCH_SESSION_TOPIC_ID"):
        assert word not in run.log(), run.describe()
