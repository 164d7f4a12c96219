"""Produce over its quota (KIP-13, KIP-219): it passes, its response tells the time, the channel is muted.

The arithmetic of all of them: 1,000 bytes/s, 11 windows of 1 s of which 10 count at the start, so 10,000 bytes are
free and 12,000 make (12,000 - 10,000) / 1,000 = 2 s.
"""

import pytest

from protocol.api import PRODUCE
from proxy.channel.verdict import REPLACE, WAIT
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support.engines import engine_with
from tests.support.frames import (
    LIST_OFFSETS,
    frame,
    heartbeat,
    join_group,
    produce,
    produce_response,
    request,
    some_response,
)
from tests.support.playbook import Drop, Insert, More, Pass, Passthrough, Playbook, Refused, Wait, playbook
from tests.unit.protocol.kafka_frames import RESPONSES, decoded, framed, struct

OVER = 12_000
WEIGHED = 4096


def response_with(version: int, throttle_ms: int) -> bytes:
    return produce_response(version, throttle_ms=throttle_ms)


@pytest.mark.parametrize("version", range(14))
def test_request_under_the_quota_is_not_muted(version: int) -> None:
    talk = playbook(producer_default=1000)
    talk.asks(0, produce(version, 10_000))


@pytest.mark.parametrize("version", range(14))
def test_request_over_the_quota_passes_and_mutes(version: int) -> None:
    talk = playbook(producer_default=1000)
    asked = produce(version, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))


@pytest.mark.parametrize("version", range(1, 14))
def test_response_carries_the_rest_of_the_throttle_time(version: int) -> None:
    talk = playbook(producer_default=1000)
    asked = produce(version, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    response = response_with(version, 0)
    talk.broker(40, response, Insert(response_with(version, 2000 - 40)), Drop(len(response)))


def test_response_without_the_field_passes() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(0, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    talk.responds(40, response_with(0, 0))


def test_larger_throttle_time_of_the_broker_stands() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    talk.responds(40, response_with(9, 5000))


def test_response_after_the_mute_passes() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    talk.responds(2000, response_with(9, 0))


def test_large_response_that_is_read_when_its_mute_is_over_is_kept_no_longer() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\1\0\0"  # no record errors, no message, no tags
    # 700 partitions: more than is read on the loop
    topic = b"\2t" + b"\xbd\x05" + 700 * partition + b"\0"
    response = frame((1).to_bytes(4) + b"\0" + b"\2" + topic + bytes(4) + b"\0")
    buffer = bytearray(response)
    responses = talk.channel.responses
    verdict = responses.receive(buffer, 0, len(buffer), 40_000_000)
    assert verdict.order == WAIT
    assert verdict.job is not None
    verdict.job.run()
    assert talk.channel.kept_bytes > 0
    verdict = responses.receive(buffer, 0, len(buffer), 2_000_000_000)
    assert (verdict.order, bytes(verdict.insert)) == (REPLACE, response)  # what the thread has read of it
    assert talk.channel.kept_bytes == 0


def test_cut_response_is_kept_until_it_is_whole() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    response = response_with(9, 0)
    talk.broker(10, response[:9], More(len(response)))


def test_pipelined_request_waits_for_the_end_of_the_mute() -> None:
    talk = playbook(producer_default=1000)
    first, second = produce(9, OVER), request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    talk.client(0, first + second, Pass(first), Wait(2000))
    talk.client(1999, b"", Wait(2000))
    talk.client(2000, b"", Pass(second))


def test_mute_begins_behind_the_frame_that_is_under_way() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, 20_000)
    talk.client(0, asked[:16_384], Pass(asked[:16_384]), Passthrough(20_004 - 16_384))
    talk.client(5, asked[16_384:], Pass(asked[16_384:]), Wait(10_000))


def test_header_alone_has_no_weight() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, 100_000)
    talk.client(0, asked[:28], More(WEIGHED))
    assert talk.engine.client("ANONYMOUS", "a", 1).produce.total == 0


def test_request_without_a_response_is_muted_all_the_same() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER, acks=0)
    talk.client(0, asked, Pass(asked), Wait(2000))


def test_request_without_a_response_owes_none() -> None:
    talk = playbook(producer_default=1000)
    first, second = produce(9, 100, acks=0), request(LIST_OFFSETS, 7, correlation_id=2, size=100)
    talk.asks(0, first + second)
    talk.responds(1, some_response(correlation_id=2))


def test_channel_remembers_requests_without_a_response() -> None:
    talk = playbook()
    talk.asks(0, produce(9, 100, acks=0))
    assert talk.channel.requests.verdict.acks_zero


def test_frame_is_charged_without_its_length_prefix() -> None:
    talk = playbook(producer_default=1e9)
    talk.asks(0, produce(9, OVER))
    assert talk.engine.client("ANONYMOUS", "a", 1).produce.total == OVER


def test_request_that_arrives_in_pieces_is_charged_once() -> None:
    talk = playbook(producer_default=1e9)
    asked = produce(9, 20_000)
    talk.client(0, asked[:60], More(WEIGHED))
    talk.client(0, asked[60:WEIGHED], Pass(asked[:WEIGHED]), Passthrough(20_004 - WEIGHED))
    talk.asks(0, asked[WEIGHED:])
    assert talk.engine.client("ANONYMOUS", "a", 1).produce.total == 20_000


def test_mute_has_a_cap() -> None:
    talk = playbook(producer_default=1000, options=EngineOptions(mute_seconds_max=5.0))
    asked = produce(9, 30_000)  # 20 s
    talk.client(0, asked, Pass(asked), Wait(5000))


def test_rest_of_a_capped_mute_stays_as_debt() -> None:
    talk = playbook(producer_default=1000, options=EngineOptions(mute_seconds_max=5.0))
    asked, small = produce(9, 30_000), produce(9, 100, correlation_id=2)
    talk.client(0, asked, Pass(asked), Wait(5000))
    talk.client(5000, small, Pass(small), Wait(10_000))


def test_named_session_timeout_caps_the_mute() -> None:
    talk = playbook(producer_default=1000)
    asked = join_group(5, 6000) + produce(9, 30_000, correlation_id=2)
    talk.client(0, asked, Pass(asked), Wait(1200))  # a fifth of 6 s


def test_longer_session_timeout_is_not_shortened_by_a_heartbeat() -> None:
    talk = playbook(producer_default=1000)
    asked = join_group(9, 45_000) + heartbeat(correlation_id=2) + produce(9, 30_000, correlation_id=3)
    talk.client(0, asked, Pass(asked), Wait(9000))


def test_heartbeat_alone_caps_the_mute_at_a_fifth_of_ten_seconds() -> None:
    talk = playbook(producer_default=1000)
    asked = heartbeat() + produce(9, 30_000, correlation_id=2)
    talk.client(0, asked, Pass(asked), Wait(2000))


def test_observed_request_is_not_muted() -> None:
    talk = playbook(producer_default=1000, options=EngineOptions(mode="observe"))
    talk.asks(0, produce(9, OVER))
    talk.responds(40, response_with(9, 0))


def test_observed_request_is_counted_as_one_that_would_be_muted() -> None:
    talk = playbook(producer_default=1000, options=EngineOptions(mode="observe"))
    talk.asks(0, produce(9, OVER))
    list(talk.channel.close(3000))
    assert talk.engine.client("ANONYMOUS", "a", 1).produce.would_throttle_ms_total == 2000


def test_raised_quota_frees_a_muted_channel() -> None:
    talk = playbook(producer_default=1000)
    first, second = produce(9, OVER), produce(9, 100, correlation_id=2)
    talk.client(0, first + second, Pass(first), Wait(2000))
    raised = Definitions(static=StaticQuotas(producer_default=100_000))
    talk.engine.update(EngineOptions(), raised, 500)
    talk.channel.reconsider()
    talk.client(500, b"", Pass(second))


def test_response_does_not_tell_a_mute_that_was_ended() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    raised = Definitions(static=StaticQuotas(producer_default=100_000))
    talk.engine.update(EngineOptions(), raised, 500)
    talk.channel.reconsider()
    talk.responds(600, produce_response(9))


def test_lowered_quota_leaves_a_muted_channel_as_it_is() -> None:
    talk = playbook(producer_default=1000)
    first, second = produce(9, OVER), produce(9, 100, correlation_id=2)
    talk.client(0, first + second, Pass(first), Wait(2000))
    lowered = Definitions(static=StaticQuotas(producer_default=10))
    talk.engine.update(EngineOptions(), lowered, 500)
    talk.channel.reconsider()
    talk.client(500, b"", Wait(2000))


@pytest.mark.parametrize("switched", ["observe", "off"])
def test_enforcement_that_ends_frees_a_muted_channel(switched: str) -> None:
    talk = playbook(producer_default=1000)
    first, second = produce(9, OVER), produce(9, 100, correlation_id=2)
    talk.client(0, first + second, Pass(first), Wait(2000))
    engine = talk.engine
    if switched == "off":
        engine.switch_enforcement(False)
    else:
        engine.update(EngineOptions(mode="observe"), engine.definitions, 500)
    talk.channel.reconsider()
    talk.client(500, b"", Pass(second))


def test_mute_left_is_told() -> None:
    talk = playbook(producer_default=1000)
    asked = produce(9, OVER)
    talk.client(0, asked, Pass(asked), Wait(2000))
    assert [talk.mute_left_ms(now_ms) for now_ms in (500, 2500)] == [1500, 0]


def scheduled() -> Playbook:
    """A schedule of 1,000 bytes/s with a burst of 1 s, used up by a first request."""
    talk = playbook(producer_default=1000, options=EngineOptions(policy="schedule"))
    first = produce(9, 3000)
    # 1,000 bytes are the burst, 2,000 are owed: 2 s.
    talk.client(0, first, Pass(first), Wait(2000))
    return talk


def test_second_channel_is_held_before_its_payload_is_read() -> None:
    talk = playbook(scheduled().engine)
    asked = produce(9, 100_000)
    assert talk.held(10, asked[:16_384]) > 10


def test_held_request_is_not_charged() -> None:
    engine = scheduled().engine
    talk = playbook(engine)
    again_ms = talk.held(10, produce(9, 500))
    talk.held(again_ms, b"")
    assert engine.client("ANONYMOUS", "a", 1).produce.total == 3000


def test_held_request_passes_when_enforcement_ends() -> None:
    engine = scheduled().engine
    talk = playbook(engine)
    asked = produce(9, 500)
    talk.held(10, asked)
    engine.switch_enforcement(False)
    talk.channel.reconsider()
    talk.client(100, b"", Pass(asked))


def test_held_request_without_a_response_marks_its_channel() -> None:
    talk = playbook(scheduled().engine)
    talk.held(10, produce(9, 500, acks=0))
    assert talk.channel.requests.verdict.acks_zero


@pytest.mark.parametrize(("acks", "label"), [(-1, "acks"), (0, "acks0")])
def test_held_request_is_refused_after_the_longest_hold(acks: int, label: str) -> None:
    options = EngineOptions(policy="schedule", hold_seconds_max=0.2)
    engine = Engine(options, Definitions(static=StaticQuotas(producer_default=1000)))
    first, second = playbook(engine), playbook(engine)
    asked, small = produce(9, 15_000), produce(9, 500, acks=acks)
    first.client(0, asked, Pass(asked), Wait(14_000))
    assert second.held(10, small) == 10 + 200
    second.client(210, produce(9, 500, correlation_id=2), Refused())  # with what is pipelined behind it
    assert second.stats.produce_refused == {label: 1}
    assert engine.client("ANONYMOUS", "a", 1).produce.total == 15_000


def late() -> tuple[Playbook, Playbook, bytes]:
    """A channel that announced 20,000 bytes at 1,000 B/s and sent 16,384 of them; and one that asks for the rest."""
    engine = engine_with(static=StaticQuotas(producer_default=1000), policy="schedule")
    slow, other = playbook(engine), playbook(engine)
    asked = produce(9, 20_000)
    slow.client(0, asked[:16_384], Pass(asked[:16_384]), Passthrough(3620))
    return slow, other, asked


def test_bytes_that_do_not_come_are_given_back_after_a_quarter_of_a_second() -> None:
    _, other, _ = late()
    owed = other.engine
    other.held(100, produce(9, 500))
    assert owed.client("ANONYMOUS", "a", 1).produce.debt_bytes(100) == 20_000 - 1000 - 100
    other.held(250, b"")
    assert owed.client("ANONYMOUS", "a", 1).produce.debt_bytes(250) == 16_380 - 1000 - 250


def test_bytes_that_come_late_wait_for_their_turn() -> None:
    slow, other, asked = late()
    other.held(250, produce(9, 500))
    rest = asked[16_384:]
    assert slow.held(300, rest) > 300
    free_ms = 16_380 - 1000  # then what has passed is paid for, but for the burst
    slow.client(free_ms, b"", Pass(rest), Wait(free_ms + 3620))


def test_bytes_that_come_late_are_refused_after_the_longest_hold() -> None:
    slow, other, asked = late()
    other.held(250, produce(9, 500))
    slow.held(300, asked[16_384:])
    slow.client(300 + 15_000, b"", Refused())
    assert slow.stats.produce_refused == {"late": 1}


def test_bytes_that_come_in_time_are_not_charged_again() -> None:
    slow, other, asked = late()
    slow.client(100, asked[16_384:], Pass(asked[16_384:]), Wait(19_000))
    other.held(250, produce(9, 500))
    assert slow.engine.client("ANONYMOUS", "a", 1).produce.debt_bytes(250) == 20_000 - 1250


def test_channel_that_closes_is_charged_for_what_arrived() -> None:
    slow, other, _ = late()
    slow.channel.close(50)
    quota = other.engine.client("ANONYMOUS", "a", 1).produce
    assert quota.debt_bytes(50) == 16_380 - 1050
    assert quota.total == 16_380


def test_new_connection_of_a_client_over_its_quota_is_held() -> None:
    engine = engine_with(static=StaticQuotas(producer_default=1000))
    first, second = playbook(engine), playbook(engine)
    asked = produce(9, OVER)
    first.client(0, asked, Pass(asked), Wait(2000))
    beat, small = heartbeat(), produce(9, 500, correlation_id=2)
    second.asks(10, beat)  # nothing else waits
    # 12,000 bytes make 2 s in the window of 10 s; 10 ms later the window is 10.01 s long.
    assert second.held(10, small) == 10 + 1990
    # 12,500 bytes; of the window's 10 s two are over, so it is as long as at the start.
    second.client(2000, b"", Pass(small), Wait(2000 + 2000))  # 2.5 s, but for a fifth of the group's 10 s


def test_new_connection_is_not_held_as_kafka_has_it() -> None:
    options = EngineOptions(new_connections="as-kafka")
    engine = Engine(options, Definitions(static=StaticQuotas(producer_default=1000)))
    first, second = playbook(engine), playbook(engine)
    asked, small = produce(9, OVER), produce(9, 500)
    first.client(0, asked, Pass(asked), Wait(2000))
    second.client(10, small, Pass(small), Wait(2500))


def test_addresses_of_new_leaders_are_ours() -> None:
    cls = RESPONSES[0]
    endpoint = struct(cls, 10, "NodeEndpoint", node_id=2, host="broker-2", port=9092, rack=None)
    response = framed(cls(version=10, node_endpoints=[endpoint]), correlation_id=1)
    talk = playbook()
    talk.asks(0, produce(10, 100))
    seen = decoded(cls, 10, talk.inserted("broker", 1, response)).node_endpoints
    assert [(node.node_id, node.host, node.port) for node in seen] == [(2, "sluice.example", 19102)]


def test_response_without_addresses_and_time_passes() -> None:
    talk = playbook()
    talk.asks(0, produce(10, 100))
    talk.responds(1, produce_response(10))


def test_tags_of_a_request_header_are_passed_over() -> None:
    talk = playbook(producer_default=1000)
    # One tagged field of three bytes, then no transactional id, acks=0.
    asked = request(PRODUCE, 9, size=OVER)
    asked = asked[:15] + b"\x01\x05\x03abc" + b"\0" + b"\0\0" + asked[24:]
    talk.client(0, asked, Pass(asked), Wait(2000))
    assert talk.channel.requests.verdict.acks_zero


def test_cut_tags_of_a_request_header_are_kept_until_they_are_whole() -> None:
    talk = playbook()
    asked = request(PRODUCE, 9, size=200)
    asked = asked[:15] + b"\x01\x05\x03abc" + b"\0" + b"\0\0" + asked[24:]
    talk.client(0, asked[:18], More(2 * 18 + 64))


def test_sidecar_does_not_keep_a_response() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, produce(10, 100))
    response = produce_response(10)
    talk.broker(1, response[:9], Pass(response[:9]), Passthrough(len(response) - 9))


def test_flows_are_given_back_at_the_end() -> None:
    talk = playbook(producer_default=1000)
    talk.asks(0, produce(9, 100))
    talk.channel.close(10)
    assert talk.engine.client("ANONYMOUS", "a", 1).produce.flows == 0
