"""ShareFetch and ShareAcknowledge (KIP-932): charged like a Fetch, told, muted, and never responded to here."""

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from protocol.api import SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.walks.share import PARTITIONS_MAX
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import Entity
from quotas.options import EngineOptions, Policy
from tests.support.engines import engine_with
from tests.support.frames import LIST_OFFSETS, frame, request, with_throttle_time
from tests.support.playbook import Ends, More, Pass, Passthrough, Playbook, Wait, playbook
from tests.support.share_frames import Acknowledged, share_acknowledge, share_fetch

THROTTLE_AT = 9
TOPIC = UUID(int=7)
MAX_BYTES_AT, MAX_RECORDS_AT = 12, 16  # behind the session epoch


def share_response(key: int, version: int, size: int = 0, host: bytes = b"broker-2.example.com") -> bytes:
    """A response without topics whose last field is a tag of filler, with one broker's address before it."""
    body = struct.pack(">ixihb", 1, 0, 0, 0)  # correlation id, tags, throttle time, error, no message
    body += struct.pack(">i", 30_000) if (key, version) != (SHARE_ACKNOWLEDGE, 1) else b""
    body += b"\1"  # no topics
    endpoint = struct.pack(">i", 2) + bytes([len(host) + 1]) + host + struct.pack(">i", 9092) + b"\0\0"
    body += b"\2" + endpoint
    if not size:
        return frame(body + b"\0")
    filler = size - len(body) - 5
    return frame(body + b"\1\x63" + _varint3(filler) + bytes(filler))


def _varint3(value: int) -> bytes:
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))


def asked(
    acknowledged: Acknowledged | None = None,
    partitions: Sequence[int] = (),
    *,
    correlation_id: int = 1,
    version: int = 2,
    **fields: Any,
) -> bytes:
    body = share_fetch(TOPIC, partitions, acknowledged, version=version, **fields)
    return request(SHARE_FETCH, version, body, correlation_id=correlation_id)


def acknowledging(correlation_id: int = 1, **fields: Any) -> bytes:
    return asked({0: [(0, 9)]}, correlation_id=correlation_id, **fields)


def acknowledge(correlation_id: int = 1) -> bytes:
    return request(
        SHARE_ACKNOWLEDGE, 2, share_acknowledge(TOPIC, {0: [(0, 9)]}), correlation_id=correlation_id
    )


def without_room(sent: bytes) -> bytes:
    """The same request that asks for no record and does not wait."""
    found = bytearray(sent)
    numbers_at = sent.index(b"\2g\2m") + 4
    struct.pack_into(">ii", found, numbers_at + 4, 0, 0)
    struct.pack_into(">i", found, numbers_at + MAX_RECORDS_AT, 0)
    return bytes(found)


def limited_to(sent: bytes, max_bytes: int) -> bytes:
    found = bytearray(sent)
    struct.pack_into(">i", found, sent.index(b"\2g\2m") + 4 + MAX_BYTES_AT, max_bytes)
    return bytes(found)


def response(size: int = 101, correlation_id: int = 1) -> bytes:
    frame_ = bytearray(share_response(SHARE_FETCH, 2, size))
    struct.pack_into(">i", frame_, 4, correlation_id)
    return bytes(frame_)


def sidecar(rate: float = 1000, **options: Any) -> Playbook:
    """kip13 unless told otherwise: at 1,000 B/s the windows hold 10 s, 10,000 B."""
    return playbook(consumer_default=rate, gateway=False, options=EngineOptions(**options))


def muted(**options: Any) -> Playbook:
    """A sidecar's dialogue with one response of 12,000 B behind it: 12 s - 10 s = 2 s."""
    talk = sidecar(**options)
    sent = asked()
    talk.client(0, sent, Pass(limited_to(sent, 10_000)))
    # The header's empty tag section is not counted.
    talk.broker(0, response(12_001), Pass(with_throttle_time(response(12_001), THROTTLE_AT, 2000)))
    return talk


@pytest.mark.parametrize(("key", "version"), [(SHARE_FETCH, 1), (SHARE_FETCH, 2), (SHARE_ACKNOWLEDGE, 2)])
def test_addresses_are_ours(key: int, version: int) -> None:
    talk = playbook()
    talk.asks(0, request(key, version, size=60))
    (passed,) = talk.orders("broker", 0, share_response(key, version))
    assert isinstance(passed, Pass)
    buf = passed.data
    assert (b"broker-2" in buf, b"sluice.example" + struct.pack(">i", 19102) in buf) == (False, True)


@pytest.mark.parametrize("key", [SHARE_FETCH, SHARE_ACKNOWLEDGE])
def test_sidecar_passes_the_response_untouched_and_acknowledgements_cost_nothing(key: int) -> None:
    talk = sidecar(1000) if key == SHARE_ACKNOWLEDGE else playbook(gateway=False)
    talk.asks(0, request(key, 2, size=60))  # no fields at all: a client without a quota is not looked at
    talk.responds(0, share_response(key, 2, 12_001))


def test_response_over_the_quota_tells_the_time_and_mutes() -> None:
    talk = muted()
    sent = request(LIST_OFFSETS, 7, size=60, correlation_id=2)
    talk.client(500, sent + acknowledge(3), Wait(2000))
    talk.client(2000, b"", Pass(sent + acknowledge(3)))


def test_rest_of_a_charged_response_passes_unseen() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, request(SHARE_FETCH, 2, size=60))
    response = share_response(SHARE_FETCH, 2, 50_000)
    talk.broker(0, response[:100], Pass(response[:100]), Passthrough(50_004 - 100))


def test_response_without_a_throttle_time_ends_the_connection() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, request(SHARE_FETCH, 2, size=60))
    talk.broker(0, frame(struct.pack(">ixh", 1, 0)), Ends("malformed"))


def test_max_bytes_and_min_bytes_are_cut_together() -> None:
    talk = sidecar()
    sent = asked(max_bytes=50_000_000, min_bytes=20_000)
    cut = bytearray(limited_to(sent, 10_000))
    struct.pack_into(">i", cut, sent.index(b"\2g\2m") + 4 + 8, 10_000)
    talk.client(0, sent, Pass(bytes(cut)))


def test_share_fetch_over_the_quota_waits_at_its_header_until_its_slot() -> None:
    talk = muted()
    sent = asked(correlation_id=2)
    talk.client(0, sent, Wait(2000))
    # Taken for one of 12,000 B again: over until the sample at 0 is gone, at 11,000 ms.
    talk.client(2000, b"", Wait(11_000, held=True))
    talk.client(11_000, b"", Pass(limited_to(sent, 10_000)))


def test_hold_ends_with_the_longest_mute_and_the_request_passes_without_room() -> None:
    talk = muted(mute_seconds_max=3)
    sent = asked(correlation_id=2)
    talk.client(2000, sent, Wait(5000, held=True))
    talk.client(5000, b"", Pass(without_room(sent)))
    small = response(correlation_id=2)  # 105 B in all: 12,105 / 1,000 - 10 s
    talk.broker(5000, small, Pass(with_throttle_time(small, THROTTLE_AT, 2105)))


@pytest.mark.parametrize("version", [1, 2])
def test_acknowledgements_over_the_quota_pass_without_room_for_records(version: int) -> None:
    talk = muted()
    sent = acknowledging(2, version=version)
    talk.client(2000, sent, Pass(without_room(sent)))


def test_acknowledgements_pass_a_mute() -> None:
    talk = muted()
    talk.client(500, b"")  # nothing waits: what comes is to be looked at
    sent = acknowledging(2)
    talk.client(500, sent[:9], More(14))
    talk.client(500, sent[9:20], More(len(sent)))
    talk.client(500, sent[20:], Pass(without_room(sent)))
    talk.asks(500, acknowledge(3))
    talk.client(500, asked(correlation_id=4), Wait(2000))


def test_acknowledgements_wait_for_a_mute_of_the_request_quota() -> None:
    engine = engine_with({Entity(client_id="a"): {"request_percentage": 1.0}})
    talk = playbook(engine, gateway=False)
    talk.asks(0, acknowledge())
    talk.orders("broker", 500, frame(b"\0\0\0\1" + bytes(20)))
    left_ms = talk.mute_left_ms(500)
    assert left_ms > 0
    talk.client(501, acknowledge(2), Wait(500 + left_ms))


@pytest.mark.parametrize("fields", [{"epoch": -1}, {"renews": 1}])
def test_end_of_a_session_and_a_renewal_pass_without_room(fields: dict[str, int]) -> None:
    talk = muted()
    sent = asked(correlation_id=2, epoch=fields.get("epoch", 1))
    if "renews" in fields:
        at = sent.index(b"\2g\2m") + 4 + 25
        sent = sent[:at] + b"\1" + sent[at + 1 :]
    talk.client(500, sent, Pass(without_room(sent)))


def test_acknowledgements_are_found_behind_many_partitions_without_any() -> None:
    talk = muted()
    sent = asked({5000: [(0, 1)]}, range(5001), correlation_id=2)
    talk.client(500, sent, Pass(without_room(sent)))


def test_more_partitions_than_are_looked_at_pass_without_room() -> None:
    talk = muted()
    talk.client(500, asked(partitions=range(PARTITIONS_MAX - 1), correlation_id=2), Wait(2000))
    talk = muted()
    sent = asked(partitions=range(PARTITIONS_MAX), correlation_id=2)
    talk.client(500, sent, Pass(without_room(sent)))


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_one_share_fetch_at_a_time_may_bring_records(policy: Policy) -> None:
    talk = sidecar(1_000_000, policy=policy)
    first, second, third = (asked(correlation_id=number, max_bytes=10_000) for number in (1, 2, 3))
    talk.client(0, first + second + third, Pass(first), Wait(0))
    talk.responds(0, response())
    talk.client(0, b"", Pass(second), Wait(0))


def test_acknowledgements_behind_a_share_fetch_pass_without_room() -> None:
    talk = sidecar(1_000_000)
    first, second = asked(correlation_id=1, max_bytes=10_000), acknowledging(2)
    talk.client(0, first + second, Pass(first + without_room(second)))
    talk.asks(0, acknowledge(3))


def test_repeated_acknowledgements_pass_without_room_for_records() -> None:
    talk = muted()
    for number in range(2, 30):
        sent = acknowledging(number)
        talk.client(number, sent, Pass(without_room(sent)))


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        *(
            (one[:6] + b"\0\0" + one[8:], "unsupported_version")
            for one in (acknowledging(version=1), acknowledge())
        ),
        (request(SHARE_FETCH, 2, b"\2g\2m" + bytes(20)), "malformed"),
    ],
    ids=["version 0", "version 0 of an acknowledgement", "ends too early"],
)
def test_request_that_cannot_be_read_ends_the_connection(sent: bytes, cause: str) -> None:
    sidecar().client(0, sent, Ends(cause))


def test_raised_quota_ends_a_mute_that_nothing_waits_for() -> None:
    talk = muted()
    engine = talk.engine
    engine.update(engine.options, Definitions(static=StaticQuotas(consumer_default=1_000_000)), 100)
    talk.channel.reconsider()
    talk.asks(100, request(LIST_OFFSETS, 7, size=60, correlation_id=2))


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_records_that_nothing_limits_are_counted_as_in_kafka(mode: str) -> None:
    """Without the frame's length and the header's tags."""
    limits = {"consumer_byte_rate": 1e9} if mode == "observe" else {"producer_byte_rate": 1e9}
    talk = playbook(engine_with({Entity(client_id="a"): limits}, mode=mode), gateway=False)
    talk.asks(0, asked())
    came = share_response(SHARE_FETCH, 2, 1000)
    talk.responds(0, came)
    assert talk.quotas.fetch.total == len(came) - 5
