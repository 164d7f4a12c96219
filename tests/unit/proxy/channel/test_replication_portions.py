"""A Fetch of thousands of replicas: a portion of them in each turn of the loop, and never half of one in force."""

import gc
from collections.abc import Callable, Sequence

import pytest

from protocol import primitives
from protocol.messages.replica_session import Replica
from protocol.primitives import PORTION
from protocol.walks.fetch import STATUSES_MAX, ReplicaStatus
from proxy.channel import AGAIN, PASS, REPLACE, WAIT, Channel
from proxy.channel.follower import ReplicaLink
from quotas.replication.replication_quotas import BrokerLimits, ThrottledReplicas
from tests.support.playbook import ordered_job
from tests.support.replicas import FOLLOWER, LEADER, quotas_of
from tests.support.worst_frames import fetched, forgetting, response_of, throttled

FULL = 5  # portions
COUNT = FULL * PORTION
PLENTY = 1e15


def shown(
    channel: Channel, asked: bytes, change: Callable[[], object] | None = None, after: int = 1, until: int = 0
) -> int:
    """Show a request until it is decided on; in how many turns of the loop, those beside it not counted.

    Args:
        change: what happens after so many of its turns.
        until: stop after so many turns instead.
    """
    direction, buf, turns = channel.requests, bytearray(asked), 1
    while turns <= until or not until:
        direction.receive(buf, 0, len(buf), 0)
        job = ordered_job(direction)
        if job is None:
            return turns
        job.run()
        turns += job is AGAIN
        if change is not None and job is AGAIN and turns == after + 1:
            change()
    return turns


def followed(rate: float | None, count: int = COUNT) -> Channel:
    """A follower that is behind with everything, by all that is known."""
    channel = throttled(rate)
    shown(channel, fetched(count))
    assert channel.requests.verdict.order in (PASS, REPLACE)
    response = bytearray(response_of(count))
    pos = 0
    while pos < len(response):
        pos += channel.responses.receive(response, pos, len(response), 0).passing
    return channel


def replicas_in_memory() -> int:
    return sum(type(found) is Replica for found in gc.get_objects())


ALL_CHANGED = fetched(COUNT, epoch=1, offset=1)


@pytest.mark.parametrize("count", [1, PORTION - 1])
@pytest.mark.parametrize("rate", [None, 0.0, PLENTY])
def test_few_replicas_take_one_turn(rate: float | None, count: int) -> None:
    assert shown(throttled(rate), fetched(count)) == 1
    assert shown(followed(rate, count), fetched(count, epoch=1, offset=1)) == 1


@pytest.mark.parametrize(
    ("rate", "walks"),
    [
        (None, 2),  # claims; what was told
        (0.0, 4),  # claims; who is behind; what each is granted; what is told
        (PLENTY, 4),
    ],
)
def test_everything_takes_a_turn_for_each_portion_of_each_walk(rate: float | None, walks: int) -> None:
    assert shown(throttled(rate), fetched(COUNT)) == 1 + walks * FULL


@pytest.mark.parametrize(
    ("rate", "walks"),
    [
        (None, 4),  # what is wanted; the request is freed; what was told; it is freed
        (0.0, 4),  # what is wanted; the request is freed; who is behind; what each is granted
        # and what is told: of what has changed, and of what is limited; what has changed is freed
        (PLENTY, 7),
    ],
)
def test_changes_take_a_turn_for_each_portion_of_each_walk(rate: float | None, walks: int) -> None:
    assert shown(followed(rate), ALL_CHANGED) == 1 + walks * FULL


def test_forgotten_replicas_take_a_turn_for_each_portion_of_each_walk() -> None:
    # They are forgotten; their claims go; the request is freed; the leader is told; that is freed.
    assert shown(followed(PLENTY), forgetting(COUNT, epoch=1)) == 1 + 5 * FULL


@pytest.mark.interpreted
def test_response_for_thousands_is_taken_so_many_partitions_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = followed(PLENTY)
    shown(channel, ALL_CHANGED)
    taken: list[int] = []
    update = ReplicaLink.update

    def noted(link: ReplicaLink, statuses: Sequence[ReplicaStatus], now_ms: int) -> None:
        taken.append(len(statuses))
        update(link, statuses, now_ms)

    monkeypatch.setattr(ReplicaLink, "update", noted)
    direction, response, pos, turns = channel.responses, bytearray(response_of(COUNT, records=100)), 0, 0
    while pos < len(response):
        pos += direction.receive(response, pos, len(response), 0).passing
        turns += 1
        assert len(taken) <= turns
    assert (sum(taken), max(taken)) == (COUNT, STATUSES_MAX)
    assert quotas_of(channel).leader(LEADER, 0).total == COUNT * 100


@pytest.mark.parametrize("asked", [fetched(COUNT), ALL_CHANGED, forgetting(COUNT, epoch=1)])
def test_nothing_is_left_of_a_connection_that_ends_between_two_portions(asked: bytes) -> None:
    turns = shown(followed(PLENTY), asked)
    for ends_after in range(1, turns, 3):
        channel = followed(PLENTY)
        quotas = quotas_of(channel)
        rates = quotas.leader(LEADER, 0), quotas.follower(FOLLOWER, 0)
        room = [rate.room(0) for rate in rates]
        assert shown(channel, asked, until=ends_after) == ends_after + 1
        rest = channel.close(0)
        assert [rate.room(0) for rate in rates] == room, ends_after
        assert (quotas.replicas, quotas.links) == (0, set())
        assert sum(1 for _ in rest) <= 2 * FULL


def test_memory_of_a_closed_link_is_freed_in_portions() -> None:
    channel = followed(PLENTY)
    before = replicas_in_memory()
    freed = [before - replicas_in_memory() for _ in channel.close(0)]
    # The replicas, each portion with the turn after it, then their claims.
    assert freed == [PORTION * index for index in range(FULL)] + [COUNT] * FULL


TURNS = 4 * FULL  # before the last one, where everything is left out


@pytest.mark.parametrize("after", [1, TURNS // 2, TURNS])
@pytest.mark.parametrize("change", ["raised", "off", "none"])
def test_quota_that_is_raised_or_off_meanwhile_ends_the_wait_before_it_begins(
    change: str, after: int
) -> None:
    channel = followed(0.0)
    quotas = quotas_of(channel)

    def changed() -> None:
        if change == "raised":
            quotas.limit(BrokerLimits(), BrokerLimits())
        quotas.enforcing = change != "off"
        channel.reconsider()

    shown(channel, ALL_CHANGED, changed, after)
    verdict = channel.requests.verdict
    if change == "none":
        assert (verdict.order, verdict.held) == (WAIT, True)
    else:
        assert verdict.order in (PASS, REPLACE), "it is with the leader"


def test_lists_that_change_meanwhile_hold_for_all_or_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are made of one version of the lists: the next Fetch has the new ones."""
    monkeypatch.setattr(primitives, "PORTION", 3)
    channel = throttled(PLENTY)
    quotas = quotas_of(channel)

    shown(channel, fetched(10), lambda: quotas.throttle(ThrottledReplicas()))
    response = response_of(10, records=100)
    for again in (fetched(10, epoch=1, offset=1), fetched(10, epoch=2, offset=2)):
        channel.responses.receive(bytearray(response), 0, len(response), 0)
        assert quotas.leader(LEADER, 0).total == 10 * 100, "of the first response, and of no other"
        shown(channel, again)
