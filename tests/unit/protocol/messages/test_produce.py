"""Produce by its bytes."""

import pytest

from protocol.messages import produce
from tests.unit.protocol.hex_frames import hex_framed

# Version 12, flexible, names: one topic "t", one partition, error 6 (NOT_LEADER_OR_FOLLOWER) and the leader in a tag.
TOPICS = (
    "02 0274 02 00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00"
    "01 00 09 00000001 00000005 00 00"
)
ENDPOINTS = "01 00 0e 02 00000001 03 6162 00000009 00 00"


def ours(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (node_id, host, port) == (1, "ab", 9)
    return ("cde", 8)


@pytest.mark.parametrize(
    ("version", "body", "acks"),
    [
        (2, "ffff 00000005", -1),
        (3, "ffff 0000 00000005", 0),
        (8, "0002 6162 0001 00000005", 1),
        (9, "00 ffff 00000005", -1),
        (9, "01 0000 00000005", 0),
        (13, "03 6162 0001 00000005", 1),
    ],
)
def test_acks_stand_behind_the_transactional_id(version: int, body: str, acks: int) -> None:
    buf = bytes.fromhex(body)
    assert produce.acks(buf, 0, len(buf), version) == acks
    assert produce.acks(b"xx" + buf, 2, len(buf) + 2, version) == acks
    for end in range(len(buf) - 4):
        assert produce.acks(buf, 0, end, version) is None


def test_acks_behind_a_long_transactional_id() -> None:
    buf = bytes.fromhex("ad02") + b"t" * 300 + b"\xff\xff"
    assert produce.acks(buf, 0, len(buf), 9) == -1
    for end in range(len(buf)):
        assert produce.acks(buf, 0, end, 9) is None


def test_response_without_changes_is_the_same_object() -> None:
    plain = hex_framed("00000007 00 01 00000063 00")
    assert produce.rewrite_response(plain, 12, ours, 0) is plain
    assert produce.rewrite_response(plain, 12, None, 0) is plain
    # The broker's 99 ms are the larger.
    assert produce.rewrite_response(plain, 12, None, 99) is plain
    version_0 = hex_framed("00000007 00000000")
    assert produce.rewrite_response(version_0, 0, ours, 100) is version_0


def test_larger_throttle_time_is_written() -> None:
    assert produce.rewrite_response(hex_framed("00000007 00 01 00000063 00"), 12, None, 100) == hex_framed(
        "00000007 00 01 00000064 00"
    )
    assert produce.rewrite_response(hex_framed("00000007 00000000 00000063"), 1, ours, 100) == hex_framed(
        "00000007 00000000 00000064"
    )


def test_addresses_are_replaced_and_the_length_with_them() -> None:
    frame = hex_framed("00000007 00" + TOPICS + "00000000" + ENDPOINTS)
    assert produce.rewrite_response(frame, 12, ours, 3) == hex_framed(
        "00000007 00" + TOPICS + "00000003" + "01 00 0f 02 00000001 04 636465 00000008 00 00"
    )


def test_sidecar_leaves_addresses_alone() -> None:
    frame = hex_framed("00000007 00" + TOPICS + "00000000" + ENDPOINTS)
    assert produce.rewrite_response(frame, 12, None, 3) == hex_framed(
        "00000007 00" + TOPICS + "00000003" + ENDPOINTS
    )
