"""Whole requests beside their rows, for replay: what of a request is kept, and what never is (issue 7).

    blank    every request as it is, but for Produce, whose payload is made up again from its row
    keep     Produce too, payload and all

Secrets never: of requests that carry any (SASL tokens, SCRAM credentials, delegation tokens, configs that may be
passwords, requests inside an Envelope) and of APIs that are not known, all behind the client id becomes zeros. Tokens
without a Kafka header are no rows. Answers are not kept.

A request that is larger than what was read at once is kept in mode `keep` alone, which puts it together as it passes;
and none is kept that is larger than FRAME_BYTES_MAX, or while RESERVED_ROWS_MAX others of its connection are owed
their answers, or for which the recorder has no room: those rows have no frame. Room is taken when a request begins, for
all of it, and given back when its row is written, whatever has become of the request.
"""

from collections.abc import Callable
from typing import Any, Final

from protocol.api import (
    API_NAMES,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    PRODUCE,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
)
from protocol.header import RequestHead
from proxy.channel.in_flight import Buffer

__all__ = ["FRAME_BYTES_MAX", "KEEP", "NOT_KEPT", "Keeper", "whole"]

KEEP: Final = "keep"
NOT_KEPT: Final = b""
FRAME_BYTES_MAX: Final = 2 * 1024 * 1024  # twice Java's max.request.size
RESERVED_ROWS_MAX: Final = 64

_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM, _ENVELOPE = 33, 44, 51, 58
_SECRET: Final = frozenset(
    (
        SASL_AUTHENTICATE, CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN, _ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM, _ENVELOPE,
    )
)  # fmt: skip


class Keeper:
    """Keeps the requests of one connection.

    Args:
        reserve: asks for room.
    """

    __slots__ = ("_growing", "_reserve", "_whole", "payloads")

    def __init__(self, mode: str, reserve: Callable[[int], bool]) -> None:
        self.payloads = mode == KEEP
        self._reserve = reserve
        self._growing: bytearray | None = None  # of the request that is passing
        self._whole = 0

    def keep(
        self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, owed: int
    ) -> bytes | bytearray:
        """What is kept of the request at `pos`; it may still grow; NOT_KEPT where it is not kept."""
        length, key, _, _, _ = head
        frame_end = pos + 4 + length
        self._growing = None
        if length > FRAME_BYTES_MAX or owed >= RESERVED_ROWS_MAX or (key == PRODUCE and not self.payloads):
            return NOT_KEPT
        secret = key in _SECRET or key not in API_NAMES
        if frame_end > end and not self.payloads and not secret:
            return NOT_KEPT
        if not self._reserve(4 + length):
            return NOT_KEPT
        if secret:
            return bytes(buf[pos : min(body, frame_end)]) + bytes(max(frame_end - body, 0))
        if frame_end <= end:
            return bytes(buf[pos:frame_end])
        self._growing = bytearray()
        self._whole = 4 + length
        return self._growing

    def begun(self) -> bool:
        """Whether a request is growing."""
        return self._growing is not None

    def passed(self, buf: Buffer, start: int, stop: int) -> None:
        """More of the request that is growing has passed; what follows it is another's."""
        growing = self._growing
        if growing is None:
            return
        growing += memoryview(buf)[start : min(stop, start + self._whole - len(growing))]
        if len(growing) >= self._whole:
            self._growing = None


def whole(frame: Any, request_bytes: int) -> bytes:
    """What was kept, if it is all there: a connection may have ended before."""
    return bytes(frame) if len(frame) == request_bytes + 4 else b""
