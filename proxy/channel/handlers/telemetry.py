"""PushTelemetry version 0 (KIP-714): the throttle times that the client's own library has read.

Behavior: the request and its response are forwarded byte for byte. What the client says of its throttle times is kept
with its identity, for operators: it decides nothing, since a client may make it up. Reading a push takes up to a few
milliseconds of the loop, so few are read: one in PUSH_EVERY_MS on a connection, PUSHES_PER_SECOND of all
connections of the process (PUSHES_AT_ONCE in one go), and none of more than TELEMETRY_BYTES_MAX. All others pass unread
and at once; a push that cannot be read passes too. `Stats.telemetry_pushes` counts each, by what was read of it.
Ignored: all other metrics, and GetTelemetrySubscriptions.
"""

from typing import Final

from protocol.errors import OversizedError, WireError
from protocol.header import RequestHead
from protocol.messages.telemetry import (
    TELEMETRY_BYTES_MAX,
    VERSION,
    UnreadableCompressionError,
    throttle_times,
)
from proxy.channel.direction import Buffer, ChannelDirection, ChannelState, Identity, Telemetry

PUSH_EVERY_MS: Final = 10_000  # brokers ask for one in 5 minutes by default
PUSHES_PER_SECOND: Final = 10
PUSHES_AT_ONCE: Final = 2
_PUSH_MS: Final = 1000 // PUSHES_PER_SECOND


def request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle a PushTelemetry: read the throttle times in it, if its turn has come, and forward it.

    Returns 0 to forward the request, or an `Order`.
    """
    length, _, version, correlation_id, _ = head
    state: ChannelState = direction.state
    unread = _unread(state, length, version, now_ms)
    if not unread and end - pos < length + 4:
        return direction.order_more_until(length + 4)
    state.stats.telemetry_pushes[unread or _read(state, buf, body, pos + 4 + length, now_ms)] += 1
    state.in_flight.append((correlation_id, version, None))
    return 0


def _unread(state: ChannelState, length: int, version: int, now_ms: int) -> str:
    """Return why a push is not read; "" if it is."""
    if version != VERSION:
        return "version"
    if length > TELEMETRY_BYTES_MAX:
        return "large"
    if now_ms < state.telemetry_from_ms:
        return "often"
    return "often" if state.stats.telemetry_paid_ms - now_ms > (PUSHES_AT_ONCE - 1) * _PUSH_MS else ""


def _read(state: ChannelState, buf: Buffer, body: int, frame_end: int, now_ms: int) -> str:
    """Read the throttle times of a push; returns what came of it, the label of a counter."""
    identity, stats = _identity(state), state.stats
    state.telemetry_from_ms = now_ms + PUSH_EVERY_MS
    stats.telemetry_paid_ms = max(stats.telemetry_paid_ms, now_ms) + _PUSH_MS
    try:
        found = throttle_times(buf, body, frame_end)
    except UnreadableCompressionError:
        return "compression"
    except OversizedError:
        return "large"
    except WireError:
        return "malformed"
    identity.telemetry = Telemetry(now_ms, found)
    return "read" if found else "nothing"


def _identity(state: ChannelState) -> Identity:
    assert state.identity is not None, "the request direction has set it"
    return state.identity
