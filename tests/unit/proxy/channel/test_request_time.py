"""proxy.channel.request_time: what is measured, told and muted for, as dialogues (kafka-quotas.md §2).

1 % of a second is 10 ms/s: 100 ms in the windows of the first second, and each 10 ms more is a second's throttle.
"""

import struct
from typing import Any

import pytest

from protocol import api
from protocol.header import RequestHead
from proxy.channel import Probe
from proxy.channel.channel import Condition
from proxy.channel.direction import Buffer
from proxy.channel.request_time import PROBED_MAX, RequestTimes
from proxy.channel.requests import RequestDirection
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support.engines import engine_with
from tests.support.frames import (
    api_versions,
    fetch,
    fetch_response,
    heartbeat,
    join_group,
    produce,
    produce_response,
    produce_to,
    request,
    some_response,
    with_throttle_time,
)
from tests.support.mutation_frames import create
from tests.support.mutation_frames import mutation_response as mutated
from tests.support.playbook import (
    Drop,
    Insert,
    More,
    Pass,
    Passthrough,
    Playbook,
    Wait,
    channel_machine,
    playbook,
    requests_of,
)
from tests.unit.protocol.kafka_frames import RESPONSES, framed

FLEXIBLE_AT = 9  # length, correlation id, no tags
FIXED_AT = 8
WRITE_TXN_MARKERS = 27


def engine(percent: float | None = 1.0, more: dict[str, float] | None = None, **options: Any) -> Engine:
    limits = dict(more or {})
    if percent is not None:
        limits["request_percentage"] = percent
    entries = {Entity(client_id=DEFAULT): limits} if limits else {}
    return engine_with(entries, **options)


def dialogue(
    percent: float | None = 1.0,
    more: dict[str, float] | None = None,
    *,
    gateway: bool = False,
    **options: Any,
) -> Playbook:
    return playbook(engine(percent, more, **options), gateway=gateway)


def plain(key: int, version: int = 0, *, correlation_id: int = 1, size: int = 60) -> bytes:
    return request(key, version, correlation_id=correlation_id, size=size)


def zeros(size: int, *, correlation_id: int = 1) -> bytes:
    """A response with no throttle time of the broker's."""
    return struct.pack(">ii", size, correlation_id) + bytes(size - 4)


def asked_and_responded(talk: Playbook, at_ms: int, took_ms: int, reported_ms: int) -> None:
    """One Heartbeat, whose response is to tell so much."""
    asked, responded = heartbeat(), zeros(20)
    talk.asks(at_ms, asked)
    talk.broker(at_ms + took_ms, responded, Pass(with_throttle_time(responded, FLEXIBLE_AT, reported_ms)))


def test_time_is_finer_than_a_millisecond() -> None:
    talk = dialogue()
    talk.extra_us = 900
    talk.asks(0, heartbeat())
    talk.extra_us = 200
    talk.responds(1, zeros(20))
    assert talk.quotas.requests.total == 300


def test_over_the_quota_the_response_tells_and_the_channel_is_muted() -> None:
    talk = dialogue()
    asked_and_responded(talk, 0, 105, 500)  # 105 / 10 - 10 = 0.5 s
    talk.client(105, heartbeat(), Wait(605))
    talk.client(605, b"", Pass(heartbeat()))
    assert (talk.quotas.requests.throttled_total, talk.quotas.requests.throttle_ms_total) == (1, 500)


def test_throttle_is_at_most_one_window_for_a_request() -> None:
    talk = dialogue()
    asked_and_responded(talk, 0, 500, 1000)
    asked_and_responded(talk, 1500, 0, 1000)


def test_pipelined_requests_are_not_charged_for_waiting_behind_each_other() -> None:
    talk = dialogue()
    talk.asks(0, heartbeat(correlation_id=1) + heartbeat(correlation_id=2))
    talk.responds(10, zeros(20))
    talk.responds(15, zeros(20, correlation_id=2))
    assert talk.quotas.requests.total == 15_000


def test_request_behind_a_large_response_is_charged_from_its_end() -> None:
    talk = dialogue()
    talk.asks(0, heartbeat(correlation_id=1) + heartbeat(correlation_id=2))
    large = zeros(1000)
    talk.broker(10, large[:100], Pass(large[:100]), Passthrough(904))
    talk.responds(300, large[100:])
    talk.responds(305, zeros(20, correlation_id=2))
    assert talk.quotas.requests.total == 15_000


def test_slow_upload_is_not_charged() -> None:
    talk = dialogue()
    asked = produce(9, 1000)
    talk.client(0, asked[:500], Pass(asked[:500]), Passthrough(504))
    talk.asks(5000, asked[500:])
    talk.responds(5004, produce_response(9))
    assert talk.quotas.requests.total == 4_000


def test_slow_upload_of_the_next_request_is_not_taken_from_this_one() -> None:
    talk = dialogue()
    first, second = produce(9, 1000), produce(9, 1000, correlation_id=2)
    talk.client(0, first[:500], Pass(first[:500]), Passthrough(504))
    talk.client(10, first[500:] + second[:100], Pass(first[500:] + second[:100]), Passthrough(904))
    talk.client(30, second[100:200], Pass(second[100:200]), Passthrough(804))
    talk.responds(50, produce_response(9))
    talk.asks(60, second[200:])
    talk.responds(65, produce_response(9, correlation_id=2))
    assert talk.quotas.requests.total == 45_000  # 50 - 10 and 65 - 60


def test_requests_sent_together_are_muted_for_as_if_one_after_the_other() -> None:
    talk = dialogue()
    talk.asks(0, heartbeat(correlation_id=1) + heartbeat(correlation_id=2))
    talk.broker(200, zeros(20), Pass(with_throttle_time(zeros(20), FLEXIBLE_AT, 1000)))
    later = zeros(20, correlation_id=2)
    talk.broker(200, later, Pass(with_throttle_time(later, FLEXIBLE_AT, 2000)))
    talk.client(200, heartbeat(), Wait(2200))
    assert talk.quotas.requests.throttle_ms_total == 2000


@pytest.mark.parametrize(
    ("asked", "responded"),
    [
        (plain(api.DESCRIBE_QUORUM), zeros(20)),
        (heartbeat(), zeros(6)),
        (heartbeat(), with_throttle_time(zeros(20), FLEXIBLE_AT, 2000)),
    ],
    ids=["no field", "shorter than its field", "the broker's time is larger"],
)
def test_response_that_does_not_tell_our_time_mutes_all_the_same(asked: bytes, responded: bytes) -> None:
    talk = dialogue()
    talk.asks(0, asked)
    talk.responds(105, responded)
    talk.client(105, heartbeat(), Wait(605))


@pytest.mark.parametrize(
    ("asked", "responded", "throttle_at"),
    [
        (plain(api.OFFSET_DELETE), zeros(20), FIXED_AT + 2),
        (produce(9, 100), produce_response(9), len(produce_response(9)) - 5),
    ],
    ids=["behind an error code", "behind the topics"],
)
def test_throttle_time_is_told_in_its_place(asked: bytes, responded: bytes, throttle_at: int) -> None:
    talk = dialogue()
    talk.asks(0, asked)
    talk.broker(105, responded, Pass(with_throttle_time(responded, throttle_at, 500)))


def test_response_that_is_cut_is_told_when_its_place_is_there() -> None:
    talk = dialogue()
    talk.asks(0, heartbeat())
    responded = zeros(20)
    talk.broker(105, responded[:8], More(24))
    talk.broker(200, responded[8:12], More(24))
    talk.broker(205, responded[12:], Pass(with_throttle_time(responded, FLEXIBLE_AT, 500)))
    assert talk.quotas.requests.total == 105_000
    talk.client(205, heartbeat(), Wait(705))


def test_response_that_is_rewritten_is_told_in_what_is_sent() -> None:
    talk = dialogue(gateway=True)
    talk.asks(0, api_versions())
    cls = RESPONSES[api.API_VERSIONS]
    responded = framed(cls(version=3, error_code=0, api_keys=[], throttle_time_ms=0), 1)
    throttled = framed(cls(version=3, error_code=0, api_keys=[], throttle_time_ms=500), 1)
    talk.broker(105, responded, Insert(throttled), Drop(len(responded)))


def test_rewritten_head_of_metadata_is_told_in() -> None:
    talk = dialogue(gateway=True)
    talk.asks(0, plain(api.METADATA, 9))
    responded = framed(RESPONSES[api.METADATA](version=9, brokers=[], topics=[]), 1)
    orders = talk.orders("broker", 105, responded)
    assert isinstance(orders[0], Insert)
    assert orders[0].data[9:13] == (500).to_bytes(4)


@pytest.mark.parametrize(
    "asked",
    [
        join_group(9, 30_000),
        plain(api.SYNC_GROUP, 5),
        plain(WRITE_TXN_MARKERS, 1),
        plain(api.SASL_HANDSHAKE, 1),
        fetch(11, replica_id=2),
        fetch(15, topics=b"\1\1\1\1\1\15" + struct.pack(">iq", 2, -1) + b"\0"),
    ],
)
def test_exempt_request_counts_nothing(asked: bytes) -> None:
    talk = dialogue()
    talk.orders("client", 0, asked)
    talk.orders("broker", 500, zeros(40))
    assert talk.quotas.requests.total == 0
    assert not talk.mute_left_ms(500)


def test_produce_without_a_response_counts_nothing() -> None:
    talk = dialogue()
    talk.asks(0, heartbeat() + produce(9, 100, acks=0))
    talk.responds(5, zeros(20))
    assert talk.quotas.requests.total == 5_000


@pytest.mark.parametrize(
    ("min_bytes", "response_bytes", "took_ms", "counted_us"),
    [
        (1, 60, 502, 2_000),  # beyond max_wait_ms, 500
        (1, 60, 300, 0),
        (0, 60, 300, 300_000),  # it did not want to wait
        (1000, 1000 + (1 << 20), 300, 300_000),  # it was all there
        (1000, 1000 + (1 << 20) - 5, 300, 0),  # the frame is 4 bytes longer
    ],
)
@pytest.mark.parametrize("version", [4, 11, 18])
def test_fetch_counts_what_it_cannot_have_waited(
    version: int, min_bytes: int, response_bytes: int, took_ms: int, counted_us: int
) -> None:
    talk = dialogue(100.0)
    talk.asks(0, fetch(version, min_bytes=min_bytes))
    talk.orders(
        "broker",
        took_ms,
        with_throttle_time(fetch_response(version, response_bytes), FIXED_AT + (version >= 12), 0),
    )
    assert talk.quotas.requests.total == counted_us


@pytest.mark.parametrize(("min_bytes", "counted_us"), [(1, 100_000), (0, 600_000)])
def test_share_fetch_counts_what_it_cannot_have_waited(min_bytes: int, counted_us: int) -> None:
    talk = dialogue(100.0)
    body = b"\2g\2m" + struct.pack(">iii", 1, 500, min_bytes)
    asked = request(api.SHARE_FETCH, 1, body, size=80)
    talk.client(0, asked[:30], More(84))
    talk.client(2, asked[30:], Pass(asked))
    talk.orders("broker", 602, zeros(60))
    assert talk.quotas.requests.total == counted_us
    assert talk.stats.requests[api.SHARE_FETCH] == 1


def test_share_fetch_that_can_not_be_read_counts_nothing() -> None:
    talk = dialogue()
    asked = request(api.SHARE_FETCH, 1, b"\2g", size=40)[:-20]
    asked = struct.pack(">i", len(asked) - 4) + asked[4:]
    talk.asks(0, asked)
    talk.orders("broker", 602, zeros(60))
    assert talk.quotas.requests.total == 0


def test_fetch_cut_in_its_front_is_taken_once_where_topics_have_quotas() -> None:
    limits = {
        Entity(client_id=DEFAULT): {"request_percentage": 1.0},
        Entity(topic="t"): {"consumer_byte_rate": 1000.0},
    }
    talk = playbook(engine_with(limits), gateway=False)
    asked, other = fetch(12), fetch(12, correlation_id=2)
    # 20 bytes: header, client id, tags, and the replica's id; the times follow, which are waited for.
    talk.client(0, asked[:20], More(len(asked)))
    talk.client(0, asked[20:] + other, Pass(asked), Wait(0))
    talk.responds(1, fetch_response(12, 40))
    talk.client(1, b"", Pass(other))


@pytest.mark.parametrize(
    ("size", "reported_ms", "fetch_ms", "requests_ms"),
    [
        (
            15_106,
            5000,
            5000,
            0,
        ),  # 15,105 bytes at 1,000/s in 10.105 s are 5 s; 5 ms more than is free are 0.5 s
        (10_606, 500, 0, 500),  # 10,605 bytes are 0.5 s, and so are 5 ms too many: a tie counts for Request
    ],
)
def test_fetch_over_both_quotas_tells_the_larger_and_counts_for_its_kind(
    size: int, reported_ms: int, fetch_ms: int, requests_ms: int
) -> None:
    talk = dialogue(1.0, {"consumer_byte_rate": 1000})
    talk.orders("client", 0, fetch(12, min_bytes=0))
    responded = with_throttle_time(fetch_response(12, size), FLEXIBLE_AT, 0)
    talk.broker(105, responded, Pass(with_throttle_time(responded, FLEXIBLE_AT, reported_ms)))
    fetched, requests = talk.quotas.fetch, talk.quotas.requests
    assert (fetched.throttle_ms_total, fetched.throttled_total) == (fetch_ms, bool(fetch_ms))
    assert (requests.throttle_ms_total, requests.throttled_total) == (requests_ms, bool(requests_ms))
    assert talk.mute_left_ms(105) == reported_ms


def test_throttled_fetch_responded_to_here_counts_nothing() -> None:
    talk = dialogue(1.0, {"consumer_byte_rate": 1000})
    talk.orders("client", 0, fetch(12, min_bytes=0))
    talk.orders("broker", 1, fetch_response(12, 15_001))
    talk.client(6000, b"")
    talk.orders("client", 6000, fetch(12, min_bytes=0, correlation_id=2))
    assert talk.quotas.requests.total == 1_000


def test_produce_over_both_quotas_tells_the_larger() -> None:
    # 15,000 bytes at 1,000/s: 5 s from the request on. 160 ms: 6 s, a window at most.
    talk = dialogue(1.0, {"producer_byte_rate": 1000}, window_seconds=10, window_samples=2)
    talk.client(0, produce(9, 15_000), Pass(produce(9, 15_000)), Wait(5000))
    talk.broker(
        160,
        produce_response(9),
        Insert(produce_response(9, throttle_ms=6000)),
        Drop(len(produce_response(9))),
    )
    assert talk.mute_left_ms(160) == 6000
    quota = talk.quotas
    assert quota.produce.throttle_ms_total == 5000
    assert quota.requests.throttle_ms_total == 6000 - 4840  # what it adds


@pytest.mark.parametrize(
    ("window_seconds", "reported_ms", "mutations_ms", "requests_ms"),
    [
        (1, 1700, 1700, 0),  # at most one window for the request: 1 s
        (3, 3000, 0, 3000),  # 300 ms / 10 ms/s - 27 s
    ],
)
def test_mutation_over_both_quotas_tells_the_larger(
    window_seconds: int, reported_ms: int, mutations_ms: int, requests_ms: int
) -> None:
    limits = {"controller_mutation_rate": 2.0}
    talk = dialogue(1.0, limits, window_samples=10, window_seconds=window_seconds)
    # 4 tokens too many, 0.6 of them there again after 0.3 s: 3.4 / 2 = 1.7 s.
    partitions = 20 * window_seconds + 4
    talk.orders("client", 0, create(5, {"t": partitions}))
    responded = mutated(api.CREATE_TOPICS, 5, [("t", 0)], partitions=partitions)
    throttled = mutated(api.CREATE_TOPICS, 5, [("t", 0)], partitions=partitions, throttle_ms=reported_ms)
    talk.broker(300, responded, Insert(throttled), Drop(len(responded)))
    quota = talk.quotas
    assert (quota.mutations.throttle_ms_total, quota.requests.throttle_ms_total) == (
        mutations_ms,
        requests_ms,
    )
    assert talk.mute_left_ms(300) == reported_ms


def test_topics_rejected_here_count_nothing() -> None:
    talk = dialogue(1.0, {"controller_mutation_rate": 2.0}, window_samples=10)
    talk.orders("client", 0, create(7, {"t": 24}))
    talk.orders("broker", 1, mutated(api.CREATE_TOPICS, 7, [("t", 0)], partitions=24))
    talk.orders("client", 1, create(7, {"u": 1}))
    talk.orders("broker", 500, b"")
    assert talk.quotas.requests.total == 1_000


def test_observed_quota_counts_and_mutes_no_client() -> None:
    talk = dialogue(mode="observe")
    talk.asks(0, heartbeat(correlation_id=1) + heartbeat(correlation_id=2))
    talk.responds(500, zeros(20))
    talk.responds(900, zeros(20, correlation_id=2))
    talk.asks(900, heartbeat())
    throttle = talk.quotas.requests
    assert (throttle.throttled_total, throttle.would_throttled_total) == (0, 2)
    list(talk.channel.close(5000))
    assert throttle.would_throttle_ms_total == 2000  # from 500 to 1500, and for another window


def test_quota_that_is_set_later_is_measured_from_the_next_request_on() -> None:
    talk = dialogue(None)
    talk.asks(0, heartbeat())
    talk.engine.update(EngineOptions(), Definitions({Entity(client_id="a"): {"request_percentage": 1}}), 0)
    talk.responds(500, zeros(20))
    assert talk.quotas.requests.total == 0
    asked_and_responded(talk, 600, 105, 500)
    talk.engine.update(EngineOptions(), Definitions(), 0)
    talk.channel.reconsider()
    asked_and_responded(talk, 710, 500, 0)


def test_only_clients_with_a_quota_are_measured() -> None:
    talk = playbook(engine_with({Entity(client_id="a"): {"request_percentage": 1}}), gateway=False)
    other, mine = heartbeat(correlation_id=1, client_id="b"), heartbeat(correlation_id=2)
    for asked in (other, mine, other):
        talk.asks(0, asked)
    for now_ms, correlation_id in ((100, 1), (300, 2), (600, 1)):
        talk.responds(now_ms, some_response(20, correlation_id=correlation_id))
    assert talk.quotas.requests.total == 300_000
    assert talk.engine.client("ANONYMOUS", "b", 1).requests.would_throttled_total == 0


@pytest.mark.parametrize(
    "named_ms", [6_000, 1]
)  # no broker takes less than 6 s, and by less no mute is ended
def test_group_member_is_muted_and_told_no_more_than_a_fifth_of_its_session_timeout(named_ms: int) -> None:
    talk = dialogue(window_seconds=2)
    talk.asks(0, join_group(9, named_ms))
    talk.orders("broker", 1, zeros(40))
    asked_and_responded(talk, 10, 500, 1200)


def test_raised_quota_ends_the_mute() -> None:
    talk = dialogue()
    asked_and_responded(talk, 0, 500, 1000)
    talk.engine.update(
        EngineOptions(), Definitions({Entity(client_id=DEFAULT): {"request_percentage": 50}}), 500
    )
    talk.channel.reconsider()
    talk.asks(501, heartbeat())


@pytest.mark.parametrize("version", [8, 9])
def test_request_that_is_walked_for_its_topics_is_measured_from_its_end(version: int) -> None:
    topic = {
        Entity(topic="t"): {"producer_byte_rate": 1000.0},
        Entity(client_id=DEFAULT): {"request_percentage": 1.0},
    }
    talk = playbook(engine_with(topic), gateway=False)
    # Some 12,000 bytes at 1,000/s: about 2 s, and the response tells what is left of them.
    asked = produce_to(version, {"t": [11_989]})
    talk.orders("client", 0, asked[:100])
    talk.passthrough("client", 5, len(asked) - 100 - 3)
    talk.orders("client", 5, asked[-3:])
    left_ms = talk.mute_left_ms(45)
    assert 1900 < left_ms <= 1965
    responded = produce_response(version)
    throttled = produce_response(version, throttle_ms=left_ms)
    talk.broker(45, responded, Insert(throttled), Drop(len(responded)))
    assert talk.quotas.requests.total == 40_000


# Requests that are timed for the admin pages, with a quota or without.

MS = 1_000_000


def visit(talk: Playbook, *, time_requests: bool = True, now_ms: int = 0) -> Condition:
    """The channel's condition; from now on requests are timed, or not."""
    return talk.channel.condition(now_ms, time_requests=time_requests)


def timed() -> Playbook:
    """A dialogue whose requests are timed."""
    talk = playbook()
    visit(talk)
    return talk


def probe(talk: Playbook) -> Probe:
    found = visit(talk).probe
    assert found is not None
    return found


def test_requests_are_timed_while_it_is_asked_for() -> None:
    talk = playbook()

    def exchange(now_ms: int, took_ms: int) -> None:
        talk.asks(now_ms, produce(9, 100))
        talk.responds(now_ms + took_ms, produce_response(9))

    exchange(10, 2)
    assert visit(talk).probe is None
    exchange(200, 7)
    exchange(300, 4)
    found = visit(talk, time_requests=False).probed.probes
    exchange(500, 100)
    assert [one.took_ns for one in found] == [7 * MS, 4 * MS]
    assert visit(talk, time_requests=False).probed.probes == []


def test_requests_that_are_not_timed_are_not_looked_at() -> None:
    channel, times, looked_at = channel_machine(), RequestTimes(), []

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
        return times.measure(direction, buf, pos, end, body, head, now_ms)

    requests = requests_of(channel, look)
    for correlation_id, measured in enumerate((False, False, True, True, False, False), start=1):
        times.visit(channel, time_requests=measured)
        data = bytearray(produce(9, 100, correlation_id=correlation_id))
        requests.receive(data, 0, len(data), 10 * MS)
    # The first one shows that the client has no request quota, the fifth that timing has ended.
    assert looked_at == [1, 3, 4, 5]


def test_timed_requests_that_are_not_taken_are_bounded() -> None:
    talk = timed()
    for number in range(10 * PROBED_MAX):
        talk.asks(number, produce(9, 100))
        talk.responds(number, produce_response(9))
    taken = visit(talk).probed
    assert (len(taken.probes), taken.missed) == (PROBED_MAX, 9 * PROBED_MAX)
    assert visit(talk).probed.probes == []


def test_age_of_the_only_request_is_known_and_of_several_since_when_nothing_moved() -> None:
    talk = playbook()
    assert visit(talk, time_requests=False).asked_ms == -1
    talk.asks(10, produce(9, 100))
    assert visit(talk, time_requests=False, now_ms=30).asked_ms == 20
    talk.asks(20, produce(9, 100, correlation_id=2))
    assert visit(talk, time_requests=False, now_ms=30).asked_ms == 10


def test_fetch_that_waited_for_records_is_told_apart() -> None:
    talk = timed()
    talk.asks(100, fetch(11))
    assert probe(talk).wait_ns == 500 * MS
    talk.responds(700, fetch_response(11, 100))
    assert (probe(talk).took_ns, probe(talk).waited_ns) == (600 * MS, 500 * MS)


def test_member_of_a_group_waits_for_the_others() -> None:
    talk = timed()
    talk.asks(100, join_group(5, 10_000))
    talk.responds(3100, some_response())
    assert probe(talk).waited_ns == probe(talk).took_ns == 3000 * MS


def test_pipelined_requests_share_the_brokers_time() -> None:
    talk = playbook()
    for correlation_id in (1, 2, 3, 4):
        visit(talk, time_requests=correlation_id == 4)
        talk.asks(10, heartbeat(correlation_id=correlation_id))
    visit(talk, time_requests=False)
    for correlation_id in (1, 2, 3, 4):
        talk.responds(10 + 10 * correlation_id, some_response(correlation_id=correlation_id))
    assert probe(talk).took_ns == 40 * MS // 4


def test_produce_without_a_response_is_not_timed() -> None:
    talk = timed()
    talk.asks(10, produce(9, 100, acks=0))
    assert visit(talk).probe is None


def test_throttle_time_reaches_the_client_as_without_a_probe() -> None:
    plain, probed = (playbook(producer_default=100.0) for _ in range(2))
    visit(probed)
    sent, received = (
        [talk.orders(who, now_ms, data) for talk in (plain, probed)]
        for who, now_ms, data in (("client", 10, produce(9, 5000)), ("broker", 20, produce_response(9)))
    )
    assert sent[0] == sent[1]
    assert received[0] == received[1]


@pytest.mark.parametrize(
    ("asked", "acks_all"),
    [(produce(version, 100, acks=acks), acks == -1) for version in (0, 3, 9) for acks in (1, -1)]
    + [
        (request(api.PRODUCE, version, fence + struct.pack(">hi", -1, 30_000), size=100), True)
        for version, fence in ((3, b"\0\x01t"), (9, b"\x02t"))
    ],
)
def test_produce_that_waits_for_followers_is_told_apart(asked: bytes, acks_all: bool) -> None:
    talk = timed()
    talk.asks(10, asked)
    assert probe(talk).acks_all is acks_all
