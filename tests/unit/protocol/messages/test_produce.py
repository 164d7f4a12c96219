"""Produce by its bytes."""

from tests.unit.protocol.hex_frames import hex_framed
from tests.unit.protocol.kafka_frames import rewrite_produce


def ours(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (node_id, host, port) == (1, "ab", 9)
    return ("cde", 8)


def test_response_without_changes_is_the_same_object() -> None:
    plain = hex_framed("00000007 00 01 00000063 00")
    assert rewrite_produce(plain, 12, ours, 0) is plain
    assert rewrite_produce(plain, 12, None, 0) is plain
    # The broker's 99 ms are the larger.
    assert rewrite_produce(plain, 12, None, 99) is plain
    version_0 = hex_framed("00000007 00000000")
    assert rewrite_produce(version_0, 0, ours, 100) is version_0
