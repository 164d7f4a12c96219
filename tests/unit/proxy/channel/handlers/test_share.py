"""ShareFetch and ShareAcknowledge (KIP-932): charged like a Fetch, told, muted, and never answered here."""

import struct

import pytest

from protocol.api import SHARE_ACKNOWLEDGE, SHARE_FETCH
from tests.support.frames import frame, request, told
from tests.support.playbook import Ends, More, Pass, Playbook, Unseen, Wait, channel_machine

THROTTLE_AT = 9


def share_answer(key: int, version: int, size: int = 0, host: bytes = b"broker-2.example.com") -> bytes:
    """An answer without topics whose last field is a tag of filler, with one broker's address before it."""
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


@pytest.mark.parametrize(("key", "version"), [(SHARE_FETCH, 1), (SHARE_FETCH, 2), (SHARE_ACKNOWLEDGE, 2)])
def test_addresses_are_ours(key: int, version: int) -> None:
    talk = Playbook(channel_machine())
    asked = request(key, version, size=60)
    talk.client(0, asked, Pass(asked))
    buf = bytearray(share_answer(key, version))
    talk.channel.responses.receive(buf, 0, len(buf), 0)
    assert (b"broker-2" in buf, b"sluice.example" + struct.pack(">i", 19102) in buf) == (False, True)


@pytest.mark.parametrize("key", [SHARE_FETCH, SHARE_ACKNOWLEDGE])
def test_sidecar_passes_the_answer_untouched(key: int) -> None:
    talk = Playbook(channel_machine(gateway=False))
    asked = request(key, 2, size=60)
    talk.client(0, asked, Pass(asked))
    talk.broker(0, share_answer(key, 2), Pass(share_answer(key, 2)))


def test_answer_over_the_quota_tells_the_time_and_mutes() -> None:
    talk = Playbook(channel_machine(consumer_default=1000, gateway=False))
    asked = request(SHARE_FETCH, 2, size=60)
    talk.client(0, asked, Pass(asked))
    answered = share_answer(SHARE_FETCH, 2, 12_001)  # without the header's empty tag section 12,000: 2 s
    talk.broker(0, answered, Pass(told(answered, THROTTLE_AT, 2000)))
    talk.client(0, b"", Wait(2000))


def test_acknowledgement_costs_nothing() -> None:
    talk = Playbook(channel_machine(consumer_default=1000, gateway=False))
    asked = request(SHARE_ACKNOWLEDGE, 2, size=60)
    talk.client(0, asked, Pass(asked))
    answered = share_answer(SHARE_ACKNOWLEDGE, 2, 12_001)
    talk.broker(0, answered, Pass(answered))


def test_share_fetch_is_forwarded_over_the_quota() -> None:
    talk = Playbook(channel_machine(consumer_default=1000, gateway=False))
    asked = request(SHARE_FETCH, 2, size=60)
    talk.client(0, asked, Pass(asked))
    answered = share_answer(SHARE_FETCH, 2, 12_001)
    talk.broker(0, answered, Pass(told(answered, THROTTLE_AT, 2000)))
    again = request(SHARE_FETCH, 2, size=60, correlation_id=2)
    talk.client(2000, again, Pass(again))


def test_cut_head_is_kept_until_the_throttle_time_is_there() -> None:
    talk = Playbook(channel_machine(gateway=False))
    asked = request(SHARE_FETCH, 2, size=60)
    talk.client(0, asked, Pass(asked))
    talk.broker(0, share_answer(SHARE_FETCH, 2)[:10], More(min(len(share_answer(SHARE_FETCH, 2)), 84)))


def test_rest_of_a_charged_answer_passes_unseen() -> None:
    talk = Playbook(channel_machine(gateway=False))
    asked = request(SHARE_FETCH, 2, size=60)
    talk.client(0, asked, Pass(asked))
    answered = share_answer(SHARE_FETCH, 2, 50_000)
    talk.broker(0, answered[:100], Pass(answered[:100]), Unseen(50_004 - 100))


def test_answer_without_a_throttle_time_ends_the_connection() -> None:
    talk = Playbook(channel_machine(gateway=False))
    asked = request(SHARE_FETCH, 2, size=60)
    talk.client(0, asked, Pass(asked))
    talk.broker(0, frame(struct.pack(">ixh", 1, 0)), Ends("malformed"))
