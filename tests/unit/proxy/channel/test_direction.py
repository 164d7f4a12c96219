"""Large frames are parsed by a job that the shell runs; what comes back belongs to exactly that frame."""

import struct
from typing import Any
from uuid import UUID

import pytest

from protocol.api import SHARE_FETCH
from protocol.errors import TruncatedError
from proxy.channel import AGAIN, WAIT, Job
from proxy.channel.direction import AT_ONCE_BYTES_MAX
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles import topic_quotas
from tests.support.engines import engine_with
from tests.support.frames import (
    fetch,
    fetched_from,
    frame,
    heartbeat,
    produce_response,
    produce_to,
    request,
    topic_id,
    with_throttle_time,
)
from tests.support.playbook import (
    Drop,
    Ends,
    Insert,
    Pass,
    Passthrough,
    Playbook,
    Wait,
    channel_machine,
    ordered_job,
    playbook,
)
from tests.support.share_frames import share_fetch

SMALL = bytes(AT_ONCE_BYTES_MAX)
LARGE = bytes(AT_ONCE_BYTES_MAX + 1)


def length(frame: bytes, more: int = 0) -> int:
    return len(frame) + more


def cut(_frame: bytes) -> int:
    raise TruncatedError("ends before it should")


def broken(_frame: bytes) -> int:
    raise KeyError("a bug of ours")


def taken(side_job: Job | None) -> Job:
    assert side_job is not None
    return side_job


def test_small_frame_is_parsed_at_once() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, SMALL) == AT_ONCE_BYTES_MAX
    assert direction.verdict.job is None


def test_large_frame_waits_for_its_job_and_is_parsed_once() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, LARGE, 5) is None
    assert (direction.verdict.order, direction.verdict.until_ms) == (WAIT, 0)
    job = taken(direction.verdict.job)
    assert direction.parse(length, LARGE, 5) is None  # shown again for another reason
    assert direction.verdict.job is None  # nothing new is to be done
    job.run()
    assert direction.parse(length, LARGE, 5) == AT_ONCE_BYTES_MAX + 6
    assert direction.parse(length, LARGE, 5) is None  # the next one just like it


def test_result_is_never_taken_for_another_frame() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, LARGE) is None
    taken(direction.verdict.job).run()
    assert direction.parse(length, LARGE + b"x") is None
    taken(direction.verdict.job).run()
    assert direction.parse(length, LARGE + b"x", 1) is None
    taken(direction.verdict.job).run()
    assert direction.parse(length, LARGE + b"x", 1) == AT_ONCE_BYTES_MAX + 3


@pytest.mark.parametrize(("function", "error"), [(cut, TruncatedError), (broken, KeyError)])
def test_exception_of_a_parser_is_raised_to_its_caller(function: type, error: type[Exception]) -> None:
    direction = channel_machine().responses
    assert direction.parse(function, LARGE) is None
    taken(direction.verdict.job).run()
    with pytest.raises(error):
        direction.parse(function, LARGE)


def test_next_turn_is_a_job_without_work() -> None:
    direction = channel_machine().responses
    direction.next_turn()
    assert direction.verdict.order == WAIT
    assert direction.verdict.job is AGAIN
    AGAIN.run()


def test_what_was_parsed_is_not_kept_over_a_mute() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, LARGE) is None
    job = taken(direction.verdict.job)
    assert job.kept_bytes == len(LARGE)
    job.run()
    direction.wait(1000, held=False)
    assert direction.parse(length, LARGE) is None
    assert direction.verdict.job is not job


OVER = {"t": [11_989]}
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


def engine(
    *topics: Name,
    key: str = PRODUCE,
    options: EngineOptions | None = None,
    producer: float | None = None,
    ids: bool = True,
) -> Engine:
    """An engine that limits these topics to 1,000 bytes/s; with `ids` it knows the name of the topic "t"."""
    entries = {Entity(topic=topic): {key: 1000.0} for topic in topics or ("t",)}
    made = Engine(options or EngineOptions(), Definitions(entries, StaticQuotas(producer_default=producer)))
    if ids:
        made.topics.names.learn(topic_id("t"), "t")
    return made


def limited(quotas: Engine | None = None, *, gateway: bool = True) -> Playbook:
    return playbook(engine() if quotas is None else quotas, gateway=gateway)


def fetching(asked: bytes, *, gateway: bool = False) -> Playbook:
    """A dialogue in which a Fetch, whose topics are limited, is with the broker."""
    talk = limited(engine(key=FETCH), gateway=gateway)
    talk.asks(0, asked)
    return talk


@pytest.mark.parametrize("producer", [None, 1000])
def test_produce_over_the_topics_quota_passes_and_its_response_tells_the_longer_time(
    producer: float | None,
) -> None:
    talk = limited(engine(producer=producer))
    asked, response = produce_to(9, OVER), produce_response(9)
    # The client's quota: the frame is 12,000 bytes of the topic and 27 besides: (12,027 - 10,000) / 1,000 s.
    until_ms = 2000 + (len(asked) - 4 - 12_000 if producer else 0)
    talk.client(0, asked, Pass(asked), Wait(until_ms))
    told = with_throttle_time(response, 10, until_ms - 40)
    talk.broker(40, response, Insert(told), Drop(len(response)))


def test_produce_to_another_topic_costs_it_nothing() -> None:
    talk = limited()
    talk.asks(0, produce_to(9, {"other": [60_000]}))
    talk.asks(0, produce_to(9, {"t": [9000]}))


def test_produce_without_a_response_mutes_too() -> None:
    talk = limited()
    asked = produce_to(9, OVER, acks=0)
    talk.client(0, asked, Pass(asked), Wait(2000))
    assert not talk.owed


def test_all_clients_count_together() -> None:
    quotas = engine()
    one, other = limited(quotas), limited(quotas)
    asked = produce_to(9, {"t": [5989]}, client_id="b")
    one.asks(0, produce_to(9, {"t": [5989]}))
    other.client(0, asked, Pass(asked), Wait(2000))


def test_mute_begins_where_the_request_ends_however_much_is_pipelined() -> None:
    talk = limited()
    asked, more = produce_to(9, OVER), produce_to(9, {"t": [10]}, correlation_id=2)
    talk.client(0, asked + more, Pass(asked), Wait(2000))
    talk.client(
        2000, b"", Pass(more), Wait(2000 + 2020)
    )  # 12,020 bytes, and the window is 10 s long as before


def test_payload_that_has_not_come_is_not_looked_at() -> None:
    talk = limited()
    asked = produce_to(9, OVER)
    talk.client(0, asked[:100], Pass(asked[:100]), Passthrough(len(asked) - 100 - 3))
    talk.passthrough("client", 0, len(asked) - 100 - 3)
    assert not talk.channel.idle()
    talk.client(5, asked[-3:], Pass(asked[-3:]), Wait(2005))


def test_mute_of_a_response_waits_for_the_request_under_way() -> None:
    quotas = engine("t", key=FETCH)
    quotas.definitions.put(Entity(topic="t"), {PRODUCE: 1e9, FETCH: 1000})
    quotas.update(quotas.options, quotas.definitions, 0)
    talk = limited(quotas)
    asked, response = fetch(12), fetched_from(12, {"t": [12_000]})
    posted = produce_to(9, OVER, correlation_id=2)
    talk.client(0, asked + posted[:60], Pass(asked + posted[:60]), Passthrough(len(posted) - 60 - 3))
    talk.responds(0, response)
    assert talk.mute_left_ms(0) > 2000
    until_ms = talk.mute_left_ms(0)
    talk.passthrough("client", 0, len(posted) - 60 - 3)
    talk.client(1, posted[-3:], Pass(posted[-3:]), Wait(until_ms))


@pytest.mark.parametrize("version", [0, 3, 8, 9, 12, 13])
def test_every_version_is_charged(version: int) -> None:
    talk = limited()
    talk.orders("client", 0, produce_to(version, {"t": [20_000]}))
    assert talk.mute_left_ms(0) // 1000 == 10


def test_malformed_request_ends_the_connection() -> None:
    asked = bytearray(produce_to(9, {"t": [100]}))
    asked[-104] = 120  # records longer than the frame
    limited().client(0, bytes(asked), Ends("malformed"))


def test_held_request_is_charged_once_it_passes() -> None:
    quotas = engine(options=EngineOptions(policy="schedule"), producer=10_000)
    one, other = limited(quotas), limited(quotas)
    one.orders("client", 0, produce_to(9, {"other": [19_000]}))
    asked = produce_to(9, OVER)
    until_ms = other.held(0, asked)
    assert len(quotas.topics) == 0
    other.held_until(until_ms, b"")
    assert [throttle.total for throttle in quotas.topics.throttles()] == [12_000]


def test_unknown_id_is_asked_for_and_charged_when_its_name_is_known() -> None:
    quotas = engine(ids=False)
    talk = limited(quotas)
    asked = produce_to(13, OVER)
    size = 16 + 1 + 4 + 2 + 11_989 + 2
    talk.asks(0, asked)
    assert quotas.topics.names.take_wanted(0) == [topic_id("t")]
    quotas.topics.names.learn(topic_id("t"), "t")
    quotas.expire(0)
    assert [throttle.total for throttle in quotas.topics.throttles()] == [size]
    talk.orders("client", 0, asked)
    assert talk.mute_left_ms(0) == 2 * size - 10_000
    assert not talk.stats.topic_bytes_uncharged


def test_unknown_ids_count_against_the_default_topics_limit_together() -> None:
    quotas = engine(DEFAULT)
    talk = limited(quotas)
    talk.orders("client", 0, produce_to(13, {"a": [6000], "b": [6000]}))
    assert [(one.topic, one.total) for one in quotas.topics.throttles()] == [("<other>", 12_050)]
    assert talk.mute_left_ms(0) == 2050


@pytest.mark.interpreted
def test_ids_beyond_those_that_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_quotas, "UNNAMED_MAX", 1)
    talk = limited(engine(ids=False))
    talk.orders("client", 0, produce_to(13, {"a": [6000], "b": [6000]}))
    assert talk.stats.topic_bytes_uncharged == 16 + 1 + 4 + 2 + 6000 + 2


def spoken(talk: Playbook, who: str, data: bytes) -> bytes:
    """What passes of it, over as many turns of the loop as it takes."""
    orders = talk.orders(who, 0, data)
    passed = b"".join(order.data for order in orders if isinstance(order, Pass))
    direction = talk.channel.requests if who == "client" else talk.channel.responses
    while ordered_job(direction) is AGAIN:
        orders = talk.orders(who, 0, b"")
        passed += b"".join(order.data for order in orders if isinstance(order, Pass))
    return passed


def test_one_fetch_at_a_time_is_with_the_broker_where_topics_are_limited() -> None:
    talk = limited(engine(key=FETCH), gateway=False)
    asked = fetch(11)
    talk.client(0, asked * 3, Pass(asked), Wait(0))


JUNK: dict[str, list[int]] = {f"junk-{index}": [] for index in range(1000)}


@pytest.mark.parametrize("version", [3, 9, 13])
def test_thousand_topics_in_front_leave_none_uncharged(version: int) -> None:
    talk = limited()
    asked = produce_to(version, JUNK | OVER)
    assert spoken(talk, "client", asked) == asked
    assert 2000 <= talk.mute_left_ms(0) <= 2014


def test_thousand_topics_in_front_of_a_response_leave_none_uncharged() -> None:
    talk = fetching(fetch(11))
    response = fetched_from(11, JUNK | OVER)
    assert spoken(talk, "broker", response) == response
    assert 2000 < talk.mute_left_ms(0) < 2100


@pytest.mark.parametrize("name", ["", "a b", "\u00e4", "<other>", "a\0", "a/b", "t" * 250, "t" * 9000])
def test_topic_with_an_impossible_name_is_not_remembered(name: str) -> None:
    quotas = engine(DEFAULT)
    talk = limited(quotas)
    talk.asks(0, produce_to(3, {name: [20_000]}))
    assert len(quotas.topics) == 0
    # Name and its length, partitions, one of them: index, length, records.
    assert talk.stats.topic_bytes_uncharged == 2 + len(name.encode()) + 4 + 4 + 4 + 20_000


def test_longest_name_of_a_topic_is_charged() -> None:
    quotas = engine(DEFAULT)
    name = "Az09._-" + "t" * 242
    talk = limited(quotas)
    talk.orders("client", 0, produce_to(3, {name: [20_000]}))
    assert [throttle.topic for throttle in quotas.topics.throttles()] == [name]


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("version", [4, 11, 12, 13, 16, 18])
def test_fetch_response_over_the_topics_quota_passes_and_mutes(version: int, gateway: bool) -> None:
    talk = fetching(fetch(version), gateway=gateway)
    talk.responds(0, fetched_from(version, {"t": [12_000], "other": [9000]}))
    assert talk.signalled
    # What is not records: name or id, counts, one partition's fields.
    assert 2000 < talk.mute_left_ms(0) < 2100
    talk.client(0, fetch(version, correlation_id=2), Wait(talk.mute_left_ms(0)))


def test_fetch_response_that_comes_in_pieces_is_charged_at_its_end() -> None:
    talk = fetching(fetch(12))
    response = fetched_from(12, {"t": [12_000]})
    talk.broker(0, response[:100], Pass(response[:100]), Passthrough(len(response) - 100 - 3))
    assert not talk.mute_left_ms(0)
    talk.passthrough("broker", 0, len(response) - 100 - 3)
    talk.responds(7, response[-3:])
    assert talk.mute_left_ms(7) > 2000


def test_share_fetch_is_charged_too() -> None:
    asked = request(SHARE_FETCH, 1, share_fetch(UUID(bytes=topic_id("t")), [0], version=1))
    # Throttle time, error, no message, lock timeout; one topic, one partition: index, error, no message twice, leader.
    body = struct.pack(">ixihxi", 1, 0, 0, 0) + b"\2" + topic_id("t") + b"\2"
    body += struct.pack(">ihxhxiix", 0, 0, 0, 0, 0) + bytes((0xE1, 0x5D)) + bytes(12_000)
    body += b"\1" + b"\0" + b"\0" + b"\1" + b"\0"  # acquired ranges, tags of both, endpoints, tags
    talk = fetching(asked)
    talk.client(0, asked, Wait(0))  # one at a time, since only its response tells whose bytes it holds
    talk.responds(0, frame(body))
    assert 2000 < talk.mute_left_ms(0) < 2100


def test_raised_quota_frees_a_muted_channel() -> None:
    talk = limited()
    talk.orders("client", 0, produce_to(9, OVER))
    assert talk.mute_left_ms(10) == 2000 - 10
    talk.engine.definitions.put(Entity(topic="t"), {PRODUCE: 5000})
    talk.engine.update(talk.engine.options, talk.engine.definitions, 10)
    talk.channel.reconsider()
    assert not talk.mute_left_ms(10)


def test_without_a_topic_quota_nothing_is_walked() -> None:
    talk = limited(engine_with())
    asked = produce_to(9, OVER)
    talk.client(0, asked[:60], Pass(asked[:60]), Passthrough(len(asked) - 60))


# The rate of a user's connections: 1/s, 11 windows of 1 s, so the twelfth waits a second.
HEARTBEAT, HELLO = heartbeat(), request(18, 0, size=20)


def crowded(
    user: Name = "u", connected: str = "u", times: int = 11, sent: bytes = HEARTBEAT, **more: Any
) -> Playbook:
    """A user's further connection, after so many that each sent this."""
    quotas = engine_with({Entity(user): {"connection_creation_rate": 1}}, **more)
    for _ in range(times):
        playbook(quotas, user=connected).asks(0, sent)
    return playbook(quotas, user=connected)


def test_first_request_over_the_connection_rate_waits() -> None:
    talk = crowded()
    talk.client(0, HEARTBEAT, Wait(1000))
    talk.client(1000, b"", Pass(HEARTBEAT))
    assert talk.stats.connections_throttled == 1
    talk.asks(1000, HEARTBEAT)


def test_connection_of_api_versions_alone_is_not_counted() -> None:
    talk = crowded("ANONYMOUS", "ANONYMOUS", times=20, sent=HELLO)
    for _ in range(11):
        playbook(talk.engine, user="ANONYMOUS").asks(0, HELLO + HEARTBEAT)
    talk.client(0, HELLO + HEARTBEAT, Pass(HELLO), Wait(1000))


def test_anonymous_is_not_the_default_user() -> None:
    crowded(DEFAULT, "ANONYMOUS", times=20)


def test_observed_connection_does_not_wait() -> None:
    talk = crowded(mode="observe")
    talk.asks(0, HEARTBEAT)
    assert talk.stats.connections_would_throttle == 1
