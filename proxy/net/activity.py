"""Determines the state of a connection at this instant, for `proxy.explain`."""

from typing import Final

from proxy.explain.condition import ASKED, AT_BROKER, AT_CLIENT, IN_SLUICE, UNASKED, UNREAD, Condition
from proxy.net.connection import HELD, MUTED, Connection, unread_bytes
from proxy.net.pump import Pump

_NS_PER_MS: Final = 1_000_000


def condition_of(connection: Connection, now: int) -> Condition:
    """Return the condition of an open connection."""
    waiting, channel = connection.waiting, connection.channel
    asked_ns = channel.asked_ns
    return Condition(
        channel.quota,
        channel.broker,
        _activity(connection),
        waiting.held_ms + waiting.running_ms(HELD, now),
        waiting.muted_ms + waiting.running_ms(MUTED, now),
        channel.muting,
        max(0, now - asked_ns // _NS_PER_MS) if asked_ns else -1,
        channel.probe,
        channel.take_probed(),
        channel.follower,
        channel.leaving_out,
        channel.virtual_time,
        waiting.until_ms(),
        channel.owed,
        channel.library,
    )


def _activity(connection: Connection) -> str:
    """Return the connection's activity; during a hold or mute, whether a response is owed."""
    requests, responses = connection.requests, connection.responses
    if connection.waiting.kind in (HELD, MUTED):
        return ASKED if connection.channel.owed else UNASKED
    if responses.blocked:
        return UNREAD
    if connection.work:
        return IN_SLUICE
    if connection.dial is not None or requests.blocked:
        return AT_BROKER
    arriving = requests.mid_frame
    if (
        connection.channel.owed > arriving
    ):  # of a request that arrives, one is owed as soon as its header is here
        return IN_SLUICE if _unread(responses) else ASKED
    if arriving:
        return AT_CLIENT
    if responses.mid_frame:
        return AT_BROKER
    return IN_SLUICE if _unread(requests) else UNASKED


def _unread(pump: Pump) -> bool:
    """Whether bytes have arrived that the loop has not read yet, since it is late or other connections come first."""
    return pump.src is not None and unread_bytes(pump.src) > 0
