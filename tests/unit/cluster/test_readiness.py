"""tests.cluster.readiness: reading the brokers out of a Metadata v1 response."""

import struct

import pytest

from tests.cluster.readiness import parse_brokers


def _broker(node: int, host: str, port: int, rack: str | None) -> bytes:
    named = struct.pack(">ih", node, len(host)) + host.encode() + struct.pack(">i", port)
    return named + (struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode())


def test_brokers_are_named_by_node_id_with_and_without_a_rack() -> None:
    body = struct.pack(">ii", 7, 2) + _broker(1, "a", 9092, None) + _broker(12, "host-b", 9093, "rack")

    assert parse_brokers(body) == {1: ("a", 9092), 12: ("host-b", 9093)}


@pytest.mark.parametrize("cut", [3, 8, 12, 16])
def test_response_cut_short_is_an_error(cut: int) -> None:
    body = struct.pack(">ii", 7, 1) + _broker(1, "a", 9092, None)

    with pytest.raises(ValueError, match="too early"):
        parse_brokers(body[:cut])
