"""Catch-up reads on a channel: which quota decides on a Fetch, and which one its response is charged to."""

import struct
from typing import Final

import pytest

from proxy.channel import Row
from proxy.channel.catch_up import UNFORESEEN_BYTES_MAX
from quotas.definitions.definitions import CATCH_UP_LAG_DEFAULT as LAG
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.throttles.bandwidth import Throttle
from tests.support.engines import engine_with
from tests.support.frames import fetch, fetched_from, with_throttle_time
from tests.support.playbook import Drop, Pass, Passthrough, Playbook, Wait, playbook
from tests.unit.proxy.channel.test_captured import captured

VERSION: Final = 15
AT_END, BEHIND = LAG, LAG + 1
CONSUMER: Final = Entity(client_id="a")
LIMITS: Final = {"consumer_byte_rate": 100_000.0, "catch_up_byte_rate": 10_000.0}
# Of a response of one partition, without its length: what is no record, less the header's tags, which do not count.
OVERHEAD: Final = len(fetched_from(VERSION, {"t": [100]})) - 100 - 4 - 1


def engine(limits: dict[str, float] | None = None, mode: str = "enforce", policy: str = "schedule") -> Engine:
    return engine_with({CONSUMER: LIMITS if limits is None else limits}, policy=policy, mode=mode)


def dialogue(of: Engine | None = None) -> Playbook:
    return playbook(engine() if of is None else of, gateway=False)


def asks(talk: Playbook, now_ms: int, correlation_id: int = 1) -> None:
    """A Fetch reaches the broker, whatever of it was changed."""
    orders = talk.orders("client", now_ms, fetch(VERSION, correlation_id=correlation_id))
    assert [type(order) for order in orders] == [Pass], orders


def reads(talk: Playbook, now_ms: int, size: int, lag: int, correlation_id: int = 1) -> None:
    """A Fetch passes, and its response with records of one partition."""
    asks(talk, now_ms, correlation_id)
    response = fetched_from(VERSION, {"t": [size]}, correlation_id=correlation_id, lags={"t": [lag]})
    talk.orders("broker", now_ms, response)


def catch_up_of(talk: Playbook, now_ms: int = 0) -> Throttle:
    throttle = talk.quotas.catch_up(now_ms)
    assert throttle is not None
    return throttle


def counted(talk: Playbook) -> tuple[int, int]:
    """The bytes that count as read behind the log's end, and the others."""
    return catch_up_of(talk).total, talk.quotas.fetch.total


@pytest.mark.parametrize(("lag", "behind"), [(AT_END, False), (BEHIND, True), (-5, False)])
def test_response_counts_where_its_records_are(lag: int, behind: bool) -> None:
    talk = dialogue()
    reads(talk, 0, 100, lag)
    assert counted(talk) == ((100 + OVERHEAD, 0) if behind else (0, 100 + OVERHEAD))


def test_each_partition_counts_by_itself() -> None:
    talk = dialogue()
    asks(talk, 0)
    lags = {"t": [BEHIND, 0], "u": [0, BEHIND]}
    response = fetched_from(VERSION, {"t": [1000, 200], "u": [30, 4000]}, lags=lags)
    talk.orders("broker", 0, response)
    assert counted(talk) == (len(response) - 4 - 1 - 230, 230)


def test_reader_at_the_end_does_not_wait_for_one_that_catches_up() -> None:
    of = engine()
    replaying, present = dialogue(of), dialogue(of)
    reads(present, 0, 100, AT_END)
    reads(replaying, 0, 50_000, BEHIND)  # five seconds of the quota
    reads(present, 10, 100, AT_END, 2)
    assert present.mute_left_ms(10) == 0
    assert replaying.mute_left_ms(10) > 3000
    assert present.quotas.fetch.throttled_total == 0


def test_channel_that_caught_up_waits_for_the_quota_of_catch_up_reads() -> None:
    talk = dialogue()
    reads(talk, 0, 50_000, BEHIND)
    mute_ms = talk.mute_left_ms(0)
    talk.client(10, fetch(VERSION, correlation_id=2), Wait(mute_ms))
    assert catch_up_of(talk).throttled_total == 1


def test_first_fetch_of_a_connection_is_one_of_catch_up_reads() -> None:
    of = engine()
    reads(dialogue(of), 0, 50_000, BEHIND)
    another = dialogue(of)
    orders = another.orders("client", 10, asked := fetch(VERSION))
    assert orders[0] == Drop(len(asked))  # it gets an empty response
    assert another.mute_left_ms(10) > 0


def test_throttle_time_is_reported_while_the_head_is_here() -> None:
    talk = dialogue()
    asks(talk, 0)
    response = fetched_from(VERSION, {"t": [50_000]}, lags={"t": [BEHIND]})
    head = response[:200]
    # 50,073 bytes take 5,008 ms; a Fetch may be three quarters of the burst of a second ahead.
    talk.broker(0, head, Pass(with_throttle_time(head, 9, 4258)), Passthrough(len(response) - 200))
    assert talk.mute_left_ms(0) == 4258


def test_head_that_was_sent_stays_as_it_is() -> None:
    talk = dialogue()
    asks(talk, 0)
    response = fetched_from(VERSION, {"t": [50_000]}, lags={"t": [BEHIND]})
    assert talk.orders("broker", 0, response[:40]) != []
    talk.orders("broker", 0, response[40:])
    assert talk.mute_left_ms(0) > 3000
    assert catch_up_of(talk).throttled_total == 1


@pytest.mark.parametrize(("head", "told"), [(200, (4258, "catch-up")), (40, (0, ""))])
def test_captured_row_has_the_throttle_time_that_was_reported(head: int, told: tuple[int, str]) -> None:
    talk, rows = captured(engine(), gateway=False)
    asks(talk, 0)
    response = fetched_from(VERSION, {"t": [50_000]}, lags={"t": [BEHIND]})
    talk.orders("broker", 0, response[:head])
    if head < 100:
        talk.orders("broker", 0, response[head:])
    (row,) = rows.rows
    assert (row[Row.THROTTLE_MS], row[Row.QUOTA]) == told


def test_unforeseen_response_is_bounded_and_charged() -> None:
    talk = dialogue(engine({"catch_up_byte_rate": 10_000.0}))
    reads(talk, 0, 100, AT_END)
    talk.client(
        10,
        fetch(VERSION, correlation_id=2),
        Pass(fetch(VERSION, correlation_id=2, max_bytes=UNFORESEEN_BYTES_MAX)),
    )
    talk.orders("broker", 10, fetched_from(VERSION, {"t": [50_000]}, correlation_id=2, lags={"t": [BEHIND]}))
    assert talk.mute_left_ms(10) > 3000
    assert catch_up_of(talk, 10).total == 50_000


def test_fetch_at_the_end_asks_for_whole_batches() -> None:
    talk = dialogue(engine({"consumer_byte_rate": 20e6, "catch_up_byte_rate": 1e6}))
    size = 400_000  # of each of two batches; the first one's length follows its offset
    response = bytearray(fetched_from(VERSION, {"t": [2 * size]}, lags={"t": [AT_END]}))
    struct.pack_into(">i", response, len(response) - 3 - 2 * size + 8, size - 12)
    for number in range(1, 4):
        asks(talk, number * 1000, number)
        struct.pack_into(">i", response, 4, number)
        talk.orders("broker", number * 1000, bytes(response))
    whole = fetch(VERSION, correlation_id=4, max_bytes=2 * size)  # not 1 MiB, which would cut the third
    talk.client(4000, fetch(VERSION, correlation_id=4), Pass(whole))


@pytest.mark.parametrize(
    ("lag", "limits"),
    [(BEHIND, LIMITS), (AT_END, {"consumer_byte_rate": 10_000.0, "catch_up_byte_rate": 1e6})],
)
def test_reconnecting_gains_nothing(lag: int, limits: dict[str, float]) -> None:
    of = engine(limits)
    taken = now_ms = 0
    while now_ms < 60_000:
        talk = dialogue(of)
        orders = talk.orders("client", now_ms, fetch(VERSION))
        if type(orders[0]) is Pass:
            talk.orders("broker", now_ms, fetched_from(VERSION, {"t": [50_000]}, lags={"t": [lag]}))
            taken += 50_000
        list(talk.channel.close(now_ms))
        now_ms += 100
    assert taken <= 10_000 * 61 + 50_000


@pytest.mark.parametrize("ends_at", [200, 60_000])
def test_response_cut_by_the_client_is_charged(ends_at: int) -> None:
    talk = dialogue()
    reads(talk, 0, 100, AT_END)
    asks(talk, 10, 2)
    response = fetched_from(VERSION, {"t": [50_000, 50_000]}, correlation_id=2, lags={"t": [BEHIND, BEHIND]})
    talk.orders("broker", 10, response[:ends_at])
    list(talk.channel.close(20))
    assert catch_up_of(talk).total == (100_000 if ends_at > 50_000 else 50_000)


def test_alternating_partitions_gain_nothing() -> None:
    of = engine()
    talk = dialogue(of)
    now_ms = taken = 0
    for number in range(2, 400):
        while talk.mute_left_ms(now_ms):
            now_ms += talk.mute_left_ms(now_ms)
        behind = number % 2
        orders = talk.orders("client", now_ms, fetch(VERSION, correlation_id=number))
        if type(orders[0]) is not Pass:
            talk.orders("broker", now_ms, b"")
            continue
        size = 20_000 if behind else 10
        lags = {"t": [BEHIND if behind else 0]}
        talk.orders("broker", now_ms, fetched_from(VERSION, {"t": [size]}, correlation_id=number, lags=lags))
        taken += size * behind
    assert taken <= 10_000 * (now_ms / 1000 + 1) + 20_000


@pytest.mark.parametrize("policy", ["schedule", "kip13"])
def test_a_little_read_behind_does_not_evade_the_quota_at_the_end(policy: str) -> None:
    # Each response has ten bytes behind, so the quota of catch-up reads decides on the next Fetch.
    limits = {"consumer_byte_rate": 10_000.0, "catch_up_byte_rate": 1e6}
    of = engine_with({CONSUMER: limits}, policy=policy, mute_seconds_max=1.0)
    talks = [dialogue(of) for _ in range(10)]
    taken = 0
    for now_ms in range(0, 60_000, 100):
        for talk in talks:
            if talk.mute_left_ms(now_ms):
                continue
            orders = talk.orders("client", now_ms, fetch(VERSION))
            response = fetched_from(VERSION, {"t": [10], "u": [9_000]}, lags={"t": [BEHIND], "u": [0]})
            passed = type(orders[0]) is Pass
            talk.orders("broker", now_ms, response if passed else b"")
            taken += 9_000 * passed
    windows_s = 12 if policy == "kip13" else 1
    assert taken <= 10_000 * (60 + windows_s) + 10 * 9_000
    assert talks[0].quotas.fetch.throttled_total > 0


def test_pipelined_fetch_waits_until_the_response_was_divided() -> None:
    talk = dialogue()
    asks(talk, 0)
    second = fetch(VERSION, correlation_id=2)
    talk.client(0, second, Wait(0))
    response = fetched_from(VERSION, {"t": [100, 100]}, lags={"t": [0, 0]})
    talk.orders("broker", 0, response[:60])
    talk.client(0, b"", Wait(0))
    talk.orders("broker", 0, response[60:])
    assert talk.signalled
    assert type(talk.orders("client", 0, b"")[0]) is Pass


def test_limit_that_ends_is_forgotten() -> None:
    of = engine()
    talk = dialogue(of)
    reads(talk, 0, 50_000, BEHIND)
    of.definitions.put(CONSUMER, {"consumer_byte_rate": 1e9})
    of.update(of.options, of.definitions, 10)
    assert (of.limits_catch_up, talk.quotas.catch_up(10)) == (False, None)
    talk.channel.reconsider()
    reads(talk, 10, 50_000, BEHIND, 2)
    assert talk.quotas.fetch.total == len(fetched_from(VERSION, {"t": [50_000]})) - 5


def test_observed_quota_is_counted_and_delays_nothing() -> None:
    talk = dialogue(engine(mode="observe"))
    response = fetched_from(VERSION, {"t": [50_000]}, lags={"t": [BEHIND]})
    for now_ms in range(4):
        talk.asks(now_ms, fetch(VERSION))
        talk.responds(now_ms, response)
    assert catch_up_of(talk).would_throttled_total > 0
    assert counted(talk) == (4 * 50_000, 4 * (len(response) - 4 - 1 - 50_000))


def test_clients_without_the_limit_are_not_walked() -> None:
    talk = playbook(engine_with({Entity(client_id="b"): LIMITS}), gateway=False)
    asked, response = fetch(VERSION), fetched_from(VERSION, {"t": [100]}, lags={"t": [BEHIND]})
    talk.client(0, asked[:20], Pass(asked[:20]), Passthrough(len(asked) - 20))
    talk.passthrough("client", 0, len(asked) - 20)
    talk.broker(0, response[:20], Pass(response[:20]), Passthrough(len(response) - 20))


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_divided(version: int) -> None:
    talk = dialogue()
    asked = fetch(version, session_id=7, session_epoch=1) if version >= 7 else fetch(version)
    assert type(talk.orders("client", 0, asked)[0]) is Pass
    response = fetched_from(version, {"t": [1000], "u": [10]}, lags={"t": [BEHIND], "u": [0]})
    talk.orders("broker", 0, response)
    assert counted(talk) == (len(response) - 4 - (version >= 12) - 10, 10)


@pytest.mark.parametrize("policy", ["schedule", "kip13"])
def test_rate_holds_in_the_long_run(policy: str) -> None:
    talk = dialogue(engine(policy=policy))
    now_ms = taken = 0
    for number in range(1, 300):
        now_ms = max(now_ms + 5, now_ms + talk.mute_left_ms(now_ms))
        orders = talk.orders("client", now_ms, fetch(VERSION, correlation_id=number))
        if type(orders[0]) is not Pass:
            talk.orders("broker", now_ms, b"")
            continue
        response = fetched_from(VERSION, {"t": [4000]}, correlation_id=number, lags={"t": [BEHIND]})
        talk.orders("broker", now_ms, response)
        taken += len(response)
    windows_s = 10 if policy == "kip13" else 1
    assert 0.97 * 10_000 * (now_ms / 1000 - 1) <= taken <= 10_000 * (now_ms / 1000 + windows_s) + 5000
