"""proxy.channel.request_time: requests are timed while it is asked for; bytes are as without it."""

import struct

import pytest

from protocol.api import PRODUCE
from protocol.header import RequestHead
from proxy.channel import Probe
from proxy.channel.channel import Channel
from proxy.channel.in_flight import Buffer
from proxy.channel.probe import PROBED_MAX
from proxy.channel.request_time import measure
from proxy.channel.requests import RequestDirection
from tests.support.frames import (
    answer,
    fetch,
    fetch_answer,
    heartbeat,
    join_group,
    produce,
    produce_answer,
    request,
)
from tests.support.playbook import channel_machine, requests_of

MS = 1_000_000


def send(channel: Channel, frame: bytes, now_ms: int) -> bytes:
    """Have the request direction handle a frame, and return what passes."""
    data = bytearray(frame)
    verdict = channel.requests.receive(data, 0, len(data), now_ms * MS)
    return bytes(data[: verdict.passing])


def respond(channel: Channel, frame: bytes, now_ms: int) -> bytes:
    data = bytearray(frame)
    verdict = channel.responses.receive(data, 0, len(data), now_ms * MS)
    return bytes(data[: verdict.passing])


def probe(channel: Channel) -> Probe:
    found = channel.probe
    assert found is not None
    return found


def test_requests_are_timed_while_it_is_asked_for() -> None:
    channel = channel_machine()
    send(channel, produce(9, 100, correlation_id=1), 10)
    respond(channel, produce_answer(9, correlation_id=1), 12)
    assert channel.probe is None
    channel.time_requests(True)
    for correlation_id, took_ms in ((2, 7), (3, 4)):
        frame = produce(9, 100, correlation_id=correlation_id)
        assert send(channel, frame, 100 * correlation_id) == frame
        response = produce_answer(9, correlation_id=correlation_id)
        assert respond(channel, response, 100 * correlation_id + took_ms) == response
    channel.time_requests(False)
    send(channel, produce(9, 100, correlation_id=4), 500)
    respond(channel, produce_answer(9, correlation_id=4), 600)
    assert [one.took_ns for one in channel.take_probed().probes] == [7 * MS, 4 * MS]
    assert channel.take_probed().probes == []


def test_requests_that_are_not_timed_are_not_looked_at() -> None:
    channel, looked_at = channel_machine(), []

    def look(
        direction: RequestDirection,
        buf: Buffer,
        pos: int,
        end: int,
        body: int,
        head: RequestHead,
        now_ms: int,
    ) -> int:
        looked_at.append(head[3])
        return measure(direction, buf, pos, end, body, head, now_ms)

    requests = requests_of(channel, look)
    for correlation_id, timed in enumerate((False, False, True, True, False, False), start=1):
        channel.time_requests(timed)
        data = bytearray(produce(9, 100, correlation_id=correlation_id))
        requests.receive(data, 0, len(data), 10 * MS)
    # The first one shows that the client has no request quota, the fifth that timing has ended.
    assert looked_at == [1, 3, 4, 5]


def test_timed_requests_that_are_not_taken_are_bounded() -> None:
    channel = channel_machine()
    channel.time_requests(True)
    for number in range(10 * PROBED_MAX):
        send(channel, produce(9, 100, correlation_id=number), number)
        respond(channel, produce_answer(9, correlation_id=number), number)
    taken = channel.take_probed()
    assert (len(taken.probes), taken.missed) == (PROBED_MAX, 9 * PROBED_MAX)
    assert channel.take_probed().probes == []


def test_age_of_the_only_request_is_known_and_of_several_since_when_nothing_moved() -> None:
    channel = channel_machine()
    assert channel.asked_ns == 0
    send(channel, produce(9, 100, correlation_id=1), 10)
    assert channel.asked_ns == 10 * MS
    send(channel, produce(9, 100, correlation_id=2), 20)
    assert channel.asked_ns == 20 * MS


def test_fetch_that_waited_for_records_is_told_apart() -> None:
    channel = channel_machine()
    channel.time_requests(True)
    send(channel, fetch(11), 100)
    assert probe(channel).wait_ns == 500 * MS
    respond(channel, fetch_answer(11, 100), 700)
    assert (probe(channel).took_ns, probe(channel).waited_ns) == (600 * MS, 500 * MS)


def test_member_of_a_group_waits_for_the_others() -> None:
    channel = channel_machine()
    channel.time_requests(True)
    send(channel, join_group(5, 10_000), 100)
    respond(channel, answer(), 3100)
    assert probe(channel).waited_ns == probe(channel).took_ns == 3000 * MS


def test_pipelined_requests_share_the_brokers_time() -> None:
    channel = channel_machine()
    for correlation_id in (1, 2, 3):
        send(channel, heartbeat(correlation_id=correlation_id), 10)
    channel.time_requests(True)
    send(channel, heartbeat(correlation_id=4), 10)
    channel.time_requests(False)
    for correlation_id in (1, 2, 3, 4):
        respond(channel, answer(correlation_id=correlation_id), 10 + 10 * correlation_id)
    assert probe(channel).took_ns == 40 * MS // 4


def test_produce_without_a_response_is_not_timed() -> None:
    channel = channel_machine()
    channel.time_requests(True)
    send(channel, produce(9, 100, acks=0), 10)
    assert channel.probe is None


def test_throttle_time_reaches_the_client_as_without_a_probe() -> None:
    plain, probed = (channel_machine(producer_default=100.0) for _ in range(2))
    probed.time_requests(True)
    sent = [send(channel, produce(9, 5000), 10) for channel in (plain, probed)]
    assert sent[0] == sent[1]
    received = [respond(channel, produce_answer(9, correlation_id=1), 20) for channel in (plain, probed)]
    assert received[0] == received[1]
    assert plain.mute_left_ms(20) == probed.mute_left_ms(20)


@pytest.mark.parametrize("version", [0, 3, 9])
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_that_waits_for_followers_is_told_apart(version: int, acks: int) -> None:
    channel = channel_machine()
    channel.time_requests(True)
    send(channel, produce(version, 100, acks=acks), 10)
    assert probe(channel).acks_all is (acks == -1)


@pytest.mark.parametrize(("version", "transactional_id"), [(3, b"\0\x01t"), (9, b"\x02t")])
def test_transaction_waits_for_followers(version: int, transactional_id: bytes) -> None:
    channel = channel_machine()
    channel.time_requests(True)
    send(channel, request(PRODUCE, version, transactional_id + struct.pack(">hi", -1, 30_000), size=100), 10)
    assert probe(channel).acks_all
