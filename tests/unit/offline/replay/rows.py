"""Recorded requests for tests, and a response to each that is sent again."""

from typing import Any

from offline.replay.schedule import Part, Recorded
from protocol.api import PRODUCE


def recorded(**fields: Any) -> Recorded:
    """A Produce of 1000 bytes to partition 0 of the topic `a`, with what is said otherwise."""
    values: dict[str, Any] = {
        "wall_ms": 1_700_000_000_000,
        "mono_us": 5_000_000,
        "process": "p",
        "connection": 1,
        "seq": 0,
        "client_id": "c",
        "broker": 1,
        "api_key": PRODUCE,
        "api_version": 9,
        "request_bytes": 1050,
        "response_bytes": 60,
        "upstream_us": 1500,
        "throttle_ms": 0,
        "delay_ms": 0,
        "partitions": (Part("a", 0, 1000, 7),),
    }
    return Recorded(**(values | fields))


def response_to(asked: bytes) -> bytes:
    """Respond to a request (without its length) as Metadata 9 does: no throttle time, no brokers."""
    response = asked[4:8] + bytes(5) + b"\1\0" + bytes(4) + b"\1" + bytes(4) + b"\0"
    return len(response).to_bytes(4, "big") + response
