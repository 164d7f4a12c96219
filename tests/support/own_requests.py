"""Whole frames of Sluice's own requests."""

from typing import Any

from kafka_client import Request
from protocol.api import flexible
from protocol.header import REQUEST_HEAD

__all__ = ["frame_of"]


def frame_of(request: Request[Any], client_id: bytes = b"sluice") -> bytes:
    """The request as it is sent."""
    tags = b"\0" if flexible(request.api_key, request.version) else b""
    head = REQUEST_HEAD.pack(0, request.api_key, request.version, 1, len(client_id))[4:]
    rest = head + client_id + tags + request.body
    return len(rest).to_bytes(4, "big") + rest
