"""Whole frames of Sluice's own requests."""

from typing import Any

from kafka_client import Request
from protocol.api import flexible
from protocol.header import REQUEST_HEAD


def frame_of(request: Request[Any], client_id: str = "sluice", correlation_id: int = 1) -> bytes:
    """The request as it is sent."""
    tags = b"\0" if flexible(request.api_key, request.version) else b""
    name = client_id.encode()
    head = REQUEST_HEAD.pack(0, request.api_key, request.version, correlation_id, len(name))[4:]
    rest = head + name + tags + request.body
    return len(rest).to_bytes(4, "big") + rest
