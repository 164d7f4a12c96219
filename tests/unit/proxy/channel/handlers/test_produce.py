"""Produce over its quota (KIP-13, KIP-219): it passes, its response tells the time, the channel is muted.

The arithmetic of all of them: 1,000 bytes/s, 11 windows of 1 s of which 10 count at the start, so 10,000 bytes are
free and 12,000 make (12,000 - 10,000) / 1,000 = 2 s.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from protocol.api import PRODUCE
from proxy.channel.verdict import REPLACE, WAIT
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support.engines import engine_with
from tests.support.frames import LIST_OFFSETS, frame, heartbeat, produce, produce_response, request
from tests.support.playbook import Drop, Insert, More, Pass, Passthrough, Playbook, Refused, Wait, playbook
from tests.unit.protocol.kafka_frames import RESPONSES, decoded, framed, struct

OVER = 12_000
WEIGHED = 4096
LATER = request(LIST_OFFSETS, 7, correlation_id=2, size=100)


def over(
    version: int = 9, *, size: int = OVER, acks: int = -1, until_ms: int = 2000, **told: Any
) -> Playbook:
    """A dialogue whose first request has passed and mutes the channel, with a second one behind it."""
    talk = playbook(producer_default=1000, **told)
    asked = produce(version, size, acks=acks)
    talk.client(0, asked + LATER, Pass(asked), Wait(until_ms))
    return talk


def limited_to(rate: float) -> Definitions:
    return Definitions(static=StaticQuotas(producer_default=rate))


@pytest.mark.parametrize("version", range(14))
def test_request_under_the_quota_is_not_muted(version: int) -> None:
    playbook(producer_default=1000).asks(0, produce(version, 10_000) + LATER)


@pytest.mark.parametrize("version", range(14))
def test_request_over_the_quota_mutes_and_its_response_tells_the_rest(version: int) -> None:
    talk = over(version)
    response = produce_response(version)
    if version:
        told = produce_response(version, throttle_ms=2000 - 40)
        talk.broker(40, response, Insert(told), Drop(len(response)))
    else:
        talk.responds(40, response)  # it has no field for it
    talk.client(1999, b"", Wait(2000))
    talk.client(2000, b"", Pass(LATER))


@pytest.mark.parametrize(
    ("now_ms", "throttle_ms"), [(40, 5000), (2000, 0)], ids=["larger time of the broker", "mute is over"]
)
def test_response_passes_where_there_is_nothing_to_add(now_ms: int, throttle_ms: int) -> None:
    over().responds(now_ms, produce_response(9, throttle_ms=throttle_ms))


def test_large_response_that_is_read_when_its_mute_is_over_is_kept_no_longer() -> None:
    machine = over().channel
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\1\0\0"  # no record errors, no message, no tags
    # 700 partitions: more than is read on the loop
    topic = b"\2t" + b"\xbd\x05" + 700 * partition + b"\0"
    response = frame((1).to_bytes(4) + b"\0" + b"\2" + topic + bytes(4) + b"\0")
    buffer = bytearray(response)
    kept = machine.kept_bytes
    verdict = machine.responses.receive(buffer, 0, len(buffer), 40_000_000)
    assert verdict.order == WAIT
    assert verdict.job is not None
    verdict.job.run()
    assert machine.kept_bytes > kept
    verdict = machine.responses.receive(buffer, 0, len(buffer), 2_000_000_000)
    assert (verdict.order, bytes(verdict.insert)) == (REPLACE, response)  # what the thread has read of it
    assert machine.kept_bytes == kept


def test_mute_begins_behind_the_frame_that_is_under_way() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, 20_000)
    talk.client(0, asked[:16_384], Pass(asked[:16_384]), Passthrough(20_004 - 16_384))
    talk.client(5, asked[16_384:], Pass(asked[16_384:]), Wait(10_000))


def test_request_in_pieces_is_charged_once_without_its_length_prefix() -> None:
    talk = playbook(producer_default=1e9)
    asked = produce(9, 20_000)
    talk.client(0, asked[:60], More(WEIGHED))
    assert talk.quotas.produce.total == 0, "a header alone has no weight"
    talk.client(0, asked[60:WEIGHED], Pass(asked[:WEIGHED]), Passthrough(20_004 - WEIGHED))
    talk.asks(0, asked[WEIGHED:])
    assert talk.quotas.produce.total == 20_000


def test_request_without_a_response_mutes_and_owes_none() -> None:
    talk = over(acks=0)
    assert not talk.owed
    assert talk.channel.requests.verdict.acks_zero


def test_rest_of_a_capped_mute_stays_as_debt() -> None:
    # 20 s
    talk = over(size=30_000, until_ms=5000, options=EngineOptions(mute_seconds_max=5.0))
    talk.client(5000, b"", Pass(LATER))
    small = produce(9, 100, correlation_id=3)
    talk.client(5000, small, Pass(small), Wait(10_000))


def test_observed_request_is_not_muted_and_counted_as_one_that_would_be() -> None:
    talk = playbook(producer_default=1000, options=EngineOptions(mode="observe"))
    talk.asks(0, produce(9, OVER) + LATER)
    talk.responds(40, produce_response(9))
    list(talk.channel.close(3000))
    assert talk.quotas.produce.would_throttle_ms_total == 2000


CHANGES: Final[dict[str, tuple[Callable[[Engine], object], bool]]] = {
    "raised": (lambda engine: engine.update(EngineOptions(), limited_to(100_000), 500), True),
    "lowered": (lambda engine: engine.update(EngineOptions(), limited_to(10), 500), False),
    "observed": (lambda engine: engine.update(EngineOptions(mode="observe"), engine.definitions, 500), True),
    "off": (lambda engine: engine.switch_enforcement(False), True),
}


@pytest.mark.parametrize(("change", "freed"), CHANGES.values(), ids=CHANGES)
def test_change_frees_a_muted_channel_unless_the_quota_is_lowered(
    change: Callable[[Engine], object], freed: bool
) -> None:
    talk = over()
    change(talk.engine)
    talk.channel.reconsider()
    talk.client(500, b"", Pass(LATER) if freed else Wait(2000))
    if freed:
        talk.responds(600, produce_response(9))  # it does not tell a mute that was ended


def scheduled() -> Playbook:
    """A second channel under a schedule of 1,000 bytes/s with a burst of 1 s, which the first one has used up."""
    # 1,000 bytes are the burst, 2,000 are owed: 2 s.
    return playbook(over(size=3000, options=EngineOptions(policy="schedule")).engine)


def test_second_channel_is_held_before_its_payload_is_read() -> None:
    assert scheduled().held(10, produce(9, 100_000)[:16_384]) > 10


def test_held_request_is_not_charged_and_marks_its_channel() -> None:
    talk = scheduled()
    again_ms = talk.held(10, produce(9, 500, acks=0))
    talk.held(again_ms, b"")
    assert talk.quotas.produce.total == 3000
    assert talk.channel.requests.verdict.acks_zero


def test_held_request_passes_when_enforcement_ends() -> None:
    talk = scheduled()
    asked = produce(9, 500)
    talk.held(10, asked)
    talk.engine.switch_enforcement(False)
    talk.channel.reconsider()
    talk.client(100, b"", Pass(asked))


@pytest.mark.parametrize(("acks", "label"), [(-1, "acks"), (0, "acks0")])
def test_held_request_is_refused_after_the_longest_hold(acks: int, label: str) -> None:
    options = EngineOptions(policy="schedule", hold_seconds_max=0.2)
    talk = playbook(over(size=15_000, until_ms=14_000, options=options).engine)
    assert talk.held(10, produce(9, 500, acks=acks)) == 10 + 200
    talk.client(210, produce(9, 500, correlation_id=2), Refused())  # with what is pipelined behind it
    assert talk.stats.produce_refused == {label: 1}
    assert talk.quotas.produce.total == 15_000


def late() -> tuple[Playbook, Playbook, bytes]:
    """A channel that announced 20,000 bytes at 1,000 B/s and sent 16,384 of them, another one, and the rest."""
    engine = engine_with(static=StaticQuotas(producer_default=1000), policy="schedule")
    slow, other = playbook(engine), playbook(engine)
    asked = produce(9, 20_000)
    slow.client(0, asked[:16_384], Pass(asked[:16_384]), Passthrough(3620))
    return slow, other, asked[16_384:]


def test_bytes_that_do_not_come_are_given_back_after_a_quarter_of_a_second() -> None:
    _, other, _ = late()
    other.held(100, produce(9, 500))
    assert other.quotas.produce.debt_bytes(100) == 20_000 - 1000 - 100
    other.held(250, b"")
    assert other.quotas.produce.debt_bytes(250) == 16_380 - 1000 - 250


def test_bytes_that_come_late_wait_for_their_turn() -> None:
    slow, other, rest = late()
    other.held(250, produce(9, 500))
    assert slow.held(300, rest) > 300
    free_ms = 16_380 - 1000  # then what has passed is paid for, but for the burst
    slow.client(free_ms, b"", Pass(rest), Wait(free_ms + 3620))


def test_bytes_that_come_late_are_refused_after_the_longest_hold() -> None:
    slow, other, rest = late()
    other.held(250, produce(9, 500))
    slow.held(300, rest)
    slow.client(300 + 15_000, b"", Refused())
    assert slow.stats.produce_refused == {"late": 1}


def test_bytes_that_come_in_time_are_not_charged_again() -> None:
    slow, other, rest = late()
    slow.client(100, rest, Pass(rest), Wait(19_000))
    other.held(250, produce(9, 500))
    assert slow.quotas.produce.debt_bytes(250) == 20_000 - 1250


def test_channel_that_closes_is_charged_for_what_arrived() -> None:
    slow, other, _ = late()
    slow.channel.close(50)
    quota = other.quotas.produce
    assert (quota.debt_bytes(50), quota.total) == (16_380 - 1050, 16_380)


def test_new_connection_of_a_client_over_its_quota_is_held() -> None:
    talk = playbook(over().engine)
    small = produce(9, 500, correlation_id=2)
    talk.asks(10, heartbeat())  # nothing else waits
    # 12,000 bytes make 2 s in the window of 10 s; 10 ms later the window is 10.01 s long.
    assert talk.held(10, small) == 10 + 1990
    # 12,500 bytes; of the window's 10 s two are over, so it is as long as at the start.
    talk.client(2000, b"", Pass(small), Wait(2000 + 2000))  # 2.5 s, but for a fifth of the group's 10 s


def test_new_connection_is_not_held_as_kafka_has_it() -> None:
    small = produce(9, 500)
    talk = playbook(over(options=EngineOptions(new_connections="as-kafka")).engine)
    talk.client(10, small, Pass(small), Wait(2500))


def test_addresses_of_new_leaders_are_ours() -> None:
    cls = RESPONSES[PRODUCE]
    endpoint = struct(cls, 10, "NodeEndpoint", node_id=2, host="broker-2", port=9092, rack=None)
    response = framed(cls(version=10, node_endpoints=[endpoint]), correlation_id=1)
    talk = playbook()
    talk.asks(0, produce(10, 100))
    seen = decoded(cls, 10, talk.inserted("broker", 1, response)).node_endpoints
    assert [(node.node_id, node.host, node.port) for node in seen] == [(2, "sluice.example", 19102)]


def test_tags_of_a_request_header_are_passed_over() -> None:
    talk = playbook(producer_default=1000)
    # One tagged field of three bytes, then no transactional id, acks=0.
    asked = request(PRODUCE, 9, size=OVER)
    asked = asked[:15] + b"\x01\x05\x03abc" + b"\0" + b"\0\0" + asked[24:]
    talk.client(0, asked[:18], More(2 * 18 + 64))
    talk.client(0, asked[18:], Pass(asked), Wait(2000))
    assert talk.channel.requests.verdict.acks_zero


def test_sidecar_does_not_keep_a_response() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, produce(10, 100))
    response = produce_response(10)
    talk.broker(1, response[:9], Pass(response[:9]), Passthrough(len(response) - 9))


def test_flows_are_given_back_at_the_end() -> None:
    talk = playbook(producer_default=1000)
    talk.asks(0, produce(9, 100))
    talk.channel.close(10)
    assert talk.quotas.produce.flows == 0
