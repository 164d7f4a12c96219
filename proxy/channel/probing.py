"""Begins a probe: decides whether the request just handled can be timed."""

from struct import Struct
from typing import Final

from protocol import api
from protocol.header import RequestHead
from proxy.channel.direction import ChannelDirection
from proxy.channel.fetch_wait import FETCHES, read_wait
from proxy.channel.in_flight import Buffer, LocalResponse, PendingResponse
from proxy.channel.probe import ANY_WAIT, Probe

_OF_GROUPS: Final = frozenset((api.JOIN_GROUP, api.SYNC_GROUP))
_NS_PER_MS: Final = 1_000_000
_ACKS_ALL: Final = -1
_FLEXIBLE_SINCE: Final = 9
_TRANSACTIONS_SINCE: Final = 3
# The number of tags (flexible versions only) and the transactional id's length, before acks.
_FLEXIBLE_FIELDS: Final = Struct(">BBh").unpack_from
_FIELDS: Final = Struct(">hh").unpack_from


def begin_probe(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead
) -> None:
    """Time the request just handled, if the broker owes a response to it."""
    state = direction.state
    in_flight = state.in_flight
    length, key, asked_version, correlation_id, _ = head
    if not in_flight:
        return
    owed_to, version, owed = in_flight[-1]
    # With acks=0 no entry was added.
    if owed_to != correlation_id or isinstance(owed, Probe | LocalResponse | PendingResponse):
        return
    wait_ns, no_wait_bytes = ANY_WAIT if key in _OF_GROUPS else 0, 0
    if key in FETCHES:
        wait = read_wait(buf, pos, end, body, head)
        if wait is None or wait.follower:
            return
        wait_ns, no_wait_bytes = wait.wait_ms * _NS_PER_MS, wait.no_wait_bytes
    acks_all = (
        key == api.PRODUCE
        and body + 4 <= min(end, pos + 4 + length)
        and _is_acks_all(buf, body, asked_version)
    )
    state.probe = Probe(direction, key, 4 + length, owed, wait_ns, no_wait_bytes, acks_all=acks_all)
    in_flight[-1] = (correlation_id, version, state.probe)


def _is_acks_all(buf: Buffer, body: int, version: int) -> bool:
    """Whether a Produce has acks=all, as far as its first fields say; one of a transaction always has."""
    if version >= _FLEXIBLE_SINCE:
        tags, transactional_id, acks = _FLEXIBLE_FIELDS(buf, body)
        return not tags and bool(transactional_id or acks == _ACKS_ALL)
    first, second = _FIELDS(buf, body)
    if version < _TRANSACTIONS_SINCE:
        return bool(first == _ACKS_ALL)
    return bool(first >= 0 or second == _ACKS_ALL)
