"""Group requests mark their connection: a mute on it stays at a fifth of the session timeout it named."""

import pytest

from protocol import api
from protocol.primitives import uvarint_bytes
from quotas.options import EngineOptions
from tests.support.frames import filler, frame, heartbeat, join_group, produce, request
from tests.support.playbook import FRAME_BYTES_MAX, Ends, Pass, Passthrough, Playbook, playbook

GROUP_APIS = (
    api.HEARTBEAT,
    api.SYNC_GROUP,
    api.CONSUMER_GROUP_HEARTBEAT,
    api.SHARE_GROUP_HEARTBEAT,
    api.STREAMS_GROUP_HEARTBEAT,
)


def named_by(asked: bytes) -> int:
    """Five times the longest mute behind these requests, which is the session timeout they name."""
    talk = playbook(producer_default=1000)
    talk.asks(0, asked)
    return 5 * longest_mute_ms(talk)


def longest_mute_ms(talk: Playbook) -> int:
    """For how long a Produce of 120 s of quota mutes."""
    talk.orders("client", 0, produce(9, 120_000))
    return talk.mute_left_ms(0)


@pytest.mark.parametrize(
    ("asked", "timeout_ms"),
    [
        *((join_group(version, 6000), 6000) for version in range(10)),
        (join_group(9, 9000) + join_group(9, 6000) + join_group(9, 45_000), 6000),  # the shortest one counts
        *((request(key, 0, size=60), 10_000) for key in GROUP_APIS),  # the shortest default of the clients
        (join_group(9, 45_000) + heartbeat(), 45_000),
        (heartbeat() + join_group(9, 45_000), 45_000),
        (request(api.JOIN_GROUP, 5, b"\0\1g\0"), 10_000),  # it ends early
        (request(api.JOIN_GROUP, 10, b"\2g\0\0\xff\xff", size=60), 10_000),  # a layout that is not known
        (request(2, 7, size=60), 5 * 20_000),  # no group request: quotas.mute_seconds_max
    ],
)
def test_group_requests_name_the_session_timeout(asked: bytes, timeout_ms: int) -> None:
    assert named_by(asked) == timeout_ms


def test_large_join_passes_behind_its_front() -> None:
    """Nothing but the group's name and the timeout is waited for, whatever follows."""
    talk = playbook(producer_default=1000)
    asked = join_group(9, 6000)
    front = asked[4:] + filler(500_000)
    large = frame(front)
    first = large[: len(asked)]
    talk.client(0, first, Pass(first), Passthrough(500_000))
    talk.passthrough("client", 0, 500_000)
    assert longest_mute_ms(talk) == 1200  # 6,000 / 5


def test_join_with_millions_of_header_tags_ends_at_their_count() -> None:
    talk = playbook()
    named = request(api.JOIN_GROUP, 9)
    asked = FRAME_BYTES_MAX.to_bytes(4, "big") + named[4:-1] + uvarint_bytes(8_000_000)
    talk.client(0, asked, Ends("malformed"))


@pytest.mark.parametrize(
    ("before", "hold_ms"),
    [
        ([], 15_000),  # as configured
        ([join_group(9, 10_000)], 2_000),  # 10,000 / 5
        ([produce(9, 100), heartbeat()], 2_000),  # it names none: the shortest default of the clients, 10 s
    ],
    ids=["no group", "join", "later heartbeat"],
)
def test_hold_is_as_short_as_a_mute_may_be_for_the_group(before: list[bytes], hold_ms: int) -> None:
    options = EngineOptions(policy="schedule", hold_seconds_max=15, mute_seconds_max=20)
    talk = playbook(options=options, producer_default=1000)
    for asked in before:
        talk.asks(0, asked)
    talk.orders("client", 0, produce(9, 100_000))
    assert talk.mute_left_ms(0) > 0
    # A second request of 100 s of quota, which asks again and again.
    assert talk.held_until(20_000, produce(9, 100_000, correlation_id=2)) == 20_000 + hold_ms
