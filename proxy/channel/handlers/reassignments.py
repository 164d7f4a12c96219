"""AlterPartitionReassignments 0-1 and ListPartitionReassignments 0-1, for reassignments in steps (KIP-435).

Behavior: an alteration is kept while the shell reads the cluster's state and records the request. Then a replacement
goes to the broker in the caller's name and with the caller's rights: first an empty request, which checks whether the
caller may reassign partitions, then one with the first steps. Each response goes to the shell, which records the
broker's result and makes the response for the caller. One alteration is handled at a time on a channel, and no request
after it, as in a broker.
A list is the broker's own response with moves in place of their steps. With `mode = "pass"` both are forwarded unread;
with SASL, so is a request before authentication, which a broker refuses by closing.

Version notes: version 1 of the list is KIP-435's; brokers are asked in version 0. A later version was never offered and
ends the connection.
"""

from dataclasses import dataclass
from typing import Final

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from protocol.header import RequestHead
from protocol.messages import reassignments
from protocol.messages.replica_session import Partition
from proxy.channel.direction import (
    Buffer,
    ChannelDirection,
    Entry,
    Forward,
    Owed,
    PendingResponse,
    Question,
    check_version,
    copied,
    fields_of,
)
from proxy.channel.errors import REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX
from proxy.channel.settings import ANONYMOUS, merge_moves

_VERSION_MAX: Final = 1  # of both APIs
_VERSION_AT: Final = 6  # the version's offset in a frame
_MOVE_BYTES: Final = 50  # approximate size in a response


@dataclass(slots=True, eq=False)
class _ListResponse(Owed):
    """A list of ongoing reassignments, with moves in place of their steps.

    Args:
        wanted: the requested partitions; None for all.
    """

    _wanted: frozenset[Partition] | None

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Put whole reassignments into the response, in place of their present steps."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, RESPONSE_BYTES_MAX[LIST_PARTITION_REASSIGNMENTS]):
            return direction.verdict.order
        shown = direction.state.settings.reassignments
        assert shown is not None, "it was asked about"
        moves, (correlation_id, version, _) = shown.moves, entry
        whole, weight = copied(buf, pos, pos + 4 + length), _MOVE_BYTES * len(moves)
        merged = direction.parse(
            merge_moves, whole, moves, self._wanted, version, correlation_id, weight=weight
        )
        if merged is None:
            return direction.verdict.order
        return direction.replace(length + 4, merged) if merged else 0


@dataclass(slots=True, eq=False)
class _AlterResponse(Owed):
    """The broker's response to the request that the shell sent in place of an alteration."""

    _forward: Forward

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Give the broker's response to the shell, which makes the response for the client."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, RESPONSE_BYTES_MAX[ALTER_PARTITION_REASSIGNMENTS]):
            return direction.verdict.order
        correlation_id, version, _ = entry
        key, _, plan = self._forward
        state = direction.state
        frame, address = copied(buf, pos, pos + 4 + length), state.settings.address
        state.question = Question(key, version, correlation_id, frame, 0, state.user, False, plan, address)
        # Placed after this response's own entry, which is removed now.
        state.in_flight.append((correlation_id, version, PendingResponse(_AlterResponse)))
        direction.verdict.signal = True
        return direction.replace(length + 4, b"")


def alter_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle AlterPartitionReassignments: give it to the shell, which returns the request for the broker.

    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    state = direction.state
    settings = state.settings
    if settings.reassignments is None or (settings.sasl and state.user == ANONYMOUS):
        state.in_flight.append((correlation_id, version, None))
        return 0
    fields_at = _fields_at(direction, buf, pos, end, body, head)
    if not fields_at:
        return direction.verdict.order
    frame = copied(buf, pos, pos + 4 + length)
    question = Question(
        key, version, correlation_id, frame, fields_at - pos, state.user, False, address=settings.address
    )
    state.respond_later(question, _AlterResponse)
    state.stats.requests[key] += 1
    direction.verdict.signal = True
    return direction.replace(length + 4, b"")


def list_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle ListPartitionReassignments: forward it in version 0; whole reassignments are put into the response.

    Returns 0 to forward the request, or an `Order`.
    """
    length, _, version, correlation_id, _ = head
    state = direction.state
    if state.settings.reassignments is None:
        state.in_flight.append((correlation_id, version, None))
        return 0
    fields_at = _fields_at(direction, buf, pos, end, body, head)
    if not fields_at:
        return direction.verdict.order
    frame = copied(buf, pos, pos + 4 + length)
    wanted = direction.parse(reassignments.read_list_request, frame, fields_at - pos)
    if wanted is None:
        return direction.verdict.order
    state.in_flight.append((correlation_id, version, _ListResponse(wanted.partitions)))
    if version == reassignments.VERSION:
        return 0
    sent = bytearray(frame)
    sent[_VERSION_AT : _VERSION_AT + 2] = reassignments.VERSION.to_bytes(2, "big")
    state.stats.requests[LIST_PARTITION_REASSIGNMENTS] += 1
    return direction.replace(length + 4, sent)


def _fields_at(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead
) -> int:
    """Return where the fields of a complete request begin; 0 with an order while it is incomplete."""
    length, key, _, _, _ = head
    check_version(head, newest=_VERSION_MAX)
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
        return 0
    return fields_of(buf, body, pos + 4 + length, head)
