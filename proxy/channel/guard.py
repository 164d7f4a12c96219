"""The guard of Sluice's own topics, groups and transactional ids, at listeners of clients where there are any.

It stands before the handlers of the APIs that could do something to them (`own.TREATMENTS`):

    WHOLE     group and transactional ids stand first: a local response with the authorization error. So does a member
              of a streams group get one whose topology would have the broker create a topic of ours
    ITEMS     our name is replaced, in place, by a stand-in of the same length that does not exist. So the broker does
              what it does to an item without permission: it refuses this one and carries out the others. In its
              response the name is put back, with the authorization error. The API's own handler sees nothing of it.
    PRODUCE   the same, while the records pass: the names of topics are looked at, around the records. With acks=0, and
              for a transactional id of ours, the connection is closed, as a broker does for acks=0
    CREATES   Metadata only reads, but may create a topic that is missing: it does not create if it names ours
    CLOSED    requests between brokers: closed if a name of ours is anywhere in them

A complete request is first searched for the bytes of the names: nearly always they are not there, and nothing is read.

Topic ids: only Produce from 13 and DeleteTopics from 6 on can do something to a topic by its id. Where something is
ours, they are not offered (`own.NEWEST`), and a client that sends them all the same is closed. So no id has to be
known, and none can be unknown. Unknown versions of guarded APIs, and unknown APIs, are closed too.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from protocol import layouts
from protocol.api import (
    ADD_PARTITIONS_TO_TXN,
    API_NAMES,
    ENVELOPE,
    PRODUCE,
    STREAMS_GROUP_HEARTBEAT,
    flexible,
)
from protocol.errors import TruncatedError
from protocol.header import RequestHead
from protocol.layouts import TOPIC, TRANSACTIONAL_ID, Named
from protocol.messages import streams
from protocol.primitives import int16, skip, streamed_count, string_span
from protocol.walks.produce import ProduceWalk
from proxy.channel.direction import (
    Buffer,
    ChannelDirection,
    ChannelState,
    Entry,
    Owed,
    PendingResponse,
    check_version,
    copied,
    fields_of,
    skip_header_tags,
)
from proxy.channel.errors import (
    FRONT_BYTES_MAX,
    GUARDED_REQUEST_BYTES_MAX,
    GUARDED_RESPONSE_BYTES_MAX,
    PeerError,
)
from proxy.channel.handlers import REQUEST_HANDLERS, produce
from proxy.channel.own import ERRORS, NEWEST, TREATMENTS, Guarded, OwnNames, Treatment
from proxy.channel.verdict import REPLACE, UNDECIDED, WALK

T = TypeVar("T")
_Handler = Callable[[ChannelDirection, Buffer, int, int, int, RequestHead, int], int]

_CAUSE: Final = "own_names"
_TRANSACTIONS_SINCE: Final = 3
_FLEXIBLE_SINCE: Final = 9
# From the tags of its header to the end of the name of a topic, which has 249 characters at most.
_PASSED_BYTES_MAX: Final = 300
# A frame is searched as fast as bytes are copied, but read at about 1 us a field: above 4 KiB in the thread.
_WEIGHT: Final = 3
# A response that its API's handler has made anew is read in this turn of the loop.
_MADE_BYTES_MAX: Final = 64 * 1024


class _Restored(Owed):
    """The response to a request in which Sluice's names were replaced: puts them back, with the authorization error.

    Args:
        owed: the owed response of the API's own handler.
        guarded: the replaced names; those of a Produce may still be found.
    """

    __slots__ = ("_found", "_guarded", "_key", "_owed")

    def __init__(self, owed: Owed | None, key: int, guarded: Guarded) -> None:
        self._owed = owed
        self._key = key
        self._guarded = guarded
        self._found: list[Named] | None = None

    def muted(self, until_ms: int) -> Owed:
        """Return an `Owed` that also writes a mute until `until_ms` into the response, as its throttle time."""
        owed = None if self._owed is None else self._owed.muted(until_ms)
        return _Restored(owed, self._key, self._guarded)

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Put Sluice's own names back into the response, and let the handler of the API decide on it."""
        length, stood_in = direction.frame_bytes - 4, self._guarded.stood_in
        if stood_in and self._found is None:
            if not direction.whole(end - pos, length, GUARDED_RESPONSE_BYTES_MAX):
                return direction.verdict.order
            frame = copied(buf, pos, pos + 4 + length)
            self._found = direction.parse(
                layouts.named_in_response,
                frame,
                self._key,
                entry[1],
                frozenset(stood_in),
                weight=_WEIGHT * len(frame),
            )
            if self._found is None:
                return direction.verdict.order
        order = 0 if self._owed is None else self._owed.respond(direction, buf, pos, end, entry, now_ms)
        if not self._found:
            return order
        own, verdict = _own(direction.state), direction.verdict
        if not order:
            _restore(buf, pos, self._found, own)
            verdict.patches += 1
        elif order == REPLACE and 0 < len(verdict.insert) <= _MADE_BYTES_MAX:
            made = bytearray(verdict.insert)
            found = layouts.named_in_response(made, self._key, entry[1], stood_in)
            _restore(made, 0, found, own)
            verdict.insert = made
        return order


def _restore(buf: Buffer, pos: int, found: list[Named], own: OwnNames) -> None:
    for label, start, stop, errors in found:
        stand_in = bytes(buf[pos + start : pos + stop])
        buf[pos + start : pos + stop] = own.originals[label, stand_in]
        code = ERRORS[label].to_bytes(2, "big")
        for at in errors:
            buf[pos + at : pos + at + 2] = code


def _whole_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Refuse a request whose group or transactional id is ours."""
    length, key, version, correlation_id, _ = head
    state = direction.state
    if state.guarded is not None:  # its items were found to be ours
        return _items(direction, buf, pos, end, body, head, now_ms)
    _check_version(head)
    own = _own(state)
    frame_end = pos + 4 + length
    if end >= frame_end and not _mentions(own, buf, body, frame_end):
        return _forward(direction, buf, pos, end, body, head, now_ms)
    named = _first_names(buf, pos, min(end, frame_end), body, head)
    if named is None:
        return direction.order_more(end - pos, length)
    label = next((label for label, name in named if (label, name) in own.wanted), None)
    if label is None:
        handle = _items if key == ADD_PARTITIONS_TO_TXN else _forward
        return handle(direction, buf, pos, end, body, head, now_ms)
    if not layouts.known(key, version):
        raise _refused(direction, key)
    if not direction.whole(end - pos, length, GUARDED_REQUEST_BYTES_MAX):
        return direction.verdict.order
    response = _parsed(direction, layouts.refusal, buf, pos, body, head, correlation_id, ERRORS[label])
    if response is None:
        return direction.verdict.order
    return _refuse_whole(direction, head, response)


def _refuse_whole(direction: ChannelDirection, head: RequestHead, response: bytes) -> int:
    """Send this response of Sluice's own in place of a complete request; returns the order."""
    length, key, version, correlation_id, _ = head
    state = direction.state
    _count(state, key)
    state.stats.requests[key] += 1
    state.respond_locally(correlation_id, version, response)
    direction.verdict.signal = True
    return direction.replace(length + 4, b"")


def _streams_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Refuse a member of a streams group that is ours, or whose topology has internal topics that are (KIP-1071)."""
    length, key, version, correlation_id, _ = head
    state = direction.state
    if state.guarded is None:
        _check_version(head)
        if not direction.whole(end - pos, length, GUARDED_REQUEST_BYTES_MAX):
            return direction.verdict.order
        own, frame_end = _own(state), pos + 4 + length
        if not _mentions(own, buf, body, frame_end):
            return _forward(direction, buf, pos, end, body, head, now_ms)
        frame, fields_at = copied(buf, pos, frame_end), fields_of(buf, body, frame_end, head) - pos
        named = layouts.named_first(frame, fields_at, len(frame), key, version)
        label = next((label for label, name in named if (label, name) in own.wanted), None)
        if label is None:
            topology = direction.parse(streams.read_topology, frame, fields_at, weight=_WEIGHT * len(frame))
            if topology is None:
                return direction.verdict.order
            if any((TOPIC, name.encode()) in own.wanted for name in streams.internal_names(topology)):
                label = TOPIC
        if label is not None:
            response = layouts.refusal(frame, fields_at, key, version, correlation_id, ERRORS[label])
            return _refuse_whole(direction, head, response)
        state.guarded = Guarded()
    return _items(direction, buf, pos, end, body, head, now_ms)


def _parsed(
    direction: ChannelDirection,
    function: Callable[..., T],
    buf: Buffer,
    pos: int,
    body: int,
    head: RequestHead,
    *arguments: object,
) -> T | None:
    """Return what a function of `layouts` finds in a complete request; None with an order while it runs."""
    frame_end = pos + 4 + head[0]
    frame, fields_at = copied(buf, pos, frame_end), fields_of(buf, body, frame_end, head) - pos
    return direction.parse(
        function, frame, fields_at, head[1], head[2], *arguments, weight=_WEIGHT * len(frame)
    )


def _first_names(
    buf: Buffer, pos: int, stop: int, body: int, head: RequestHead
) -> list[tuple[str, bytes]] | None:
    """Return the ids that belong to the whole request; None if they have not arrived."""
    length, key, version, _, _ = head
    fields_at = skip_header_tags(buf, body, stop, flexible=flexible(key, version))
    if fields_at is not None:
        try:
            return layouts.named_first(buf, fields_at, stop, key, version)
        except TruncatedError:
            pass
    if stop - pos > FRONT_BYTES_MAX:
        raise PeerError(
            "malformed", f"no group in the first {stop - pos} of {length} bytes of {API_NAMES[key]}"
        )
    return None


def _items(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Replace Sluice's names by their stand-ins, so that the broker refuses the items that have them."""
    length, key, version, _, _ = head
    state = direction.state
    if state.guarded is None:
        _check_version(head)
        if not direction.whole(end - pos, length, GUARDED_REQUEST_BYTES_MAX):
            return direction.verdict.order
        own, frame_end = _own(state), pos + 4 + length
        if not _mentions(own, buf, body, frame_end):
            return _forward(direction, buf, pos, end, body, head, now_ms)
        if not layouts.known(key, version):
            raise _refused(direction, key)
        found = _parsed(direction, layouts.named_in_request, buf, pos, body, head, own.wanted)
        if found is None:
            return direction.verdict.order
        state.guarded = guarded = Guarded()
        for label, start, stop, _ in found:
            _stand_in(own, guarded, label, buf, pos + start, pos + stop)
        if found:
            _count(state, key)
            direction.verdict.patches += 1
    order = _forward(direction, buf, pos, end, body, head, now_ms)
    return _restore_later(direction, key, order)


def _restore_later(direction: ChannelDirection, key: int, order: int) -> int:
    """Wrap the response in `_Restored`, if the API's handler has decided on the request; returns that handler's
    order.
    """
    state = direction.state
    if order & UNDECIDED or (order == REPLACE and not direction.verdict.drop):
        return order  # the same request is shown again
    guarded, state.guarded = state.guarded, None
    if guarded is not None and guarded.stood_in and state.in_flight:
        correlation_id, version, owed = state.in_flight[-1]
        if owed is None or not (owed.made or isinstance(owed, PendingResponse)):
            state.in_flight[-1] = (correlation_id, version, _Restored(owed, key, guarded))
    return order


def _metadata(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Forward a Metadata request; one that names a topic of Sluice's must not create topics."""
    length, key, _, _, _ = head
    state = direction.state
    if state.guarded is None:
        _check_version(head)
        if not direction.whole(end - pos, length, GUARDED_REQUEST_BYTES_MAX):
            return direction.verdict.order
        own, frame_end = _own(state), pos + 4 + length
        if not _mentions(own, buf, body, frame_end):
            return _forward(direction, buf, pos, end, body, head, now_ms)
        flag_at = _parsed(direction, layouts.creation_at, buf, pos, body, head, own.wanted)
        if flag_at is None:
            return direction.verdict.order
        state.guarded = Guarded()
        if flag_at == layouts.NO_FLAG:
            raise _refused(direction, key)
        if flag_at >= 0 and buf[pos + flag_at]:
            buf[pos + flag_at] = 0
            direction.verdict.patches += 1
    order = _forward(direction, buf, pos, end, body, head, now_ms)
    return _restore_later(direction, key, order)


def _between_brokers(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Close the connection if a name of ours is in a request that only brokers send."""
    length, key, _, _, _ = head
    if key == ENVELOPE:  # another request is in it, which could name a topic by its id
        raise _refused(direction, key)
    if not direction.whole(end - pos, length, GUARDED_REQUEST_BYTES_MAX):
        return direction.verdict.order
    if _mentions(_own(direction.state), buf, body, pos + 4 + length):
        raise _refused(direction, key)
    return _forward(direction, buf, pos, end, body, head, now_ms)


def _produce(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Replace the names of Sluice's topics in a Produce, so that the broker refuses these and writes the others."""
    state = direction.state
    # Nearly always it begins as the last one did, up to the name of its one topic.
    if buf.startswith(state.passed_front, body, end) and head[2] == state.passed_version:
        return produce.request(direction, buf, pos, end, body, head, now_ms)
    return _unusual_produce(direction, buf, pos, end, body, head, now_ms)


class _Watch(Guarded):
    """Checks the topics of a Produce that is walked, before their bytes pass."""

    __slots__ = ("_direction", "owes")

    def __init__(self, direction: ChannelDirection, *, owes: bool) -> None:
        super().__init__()
        self._direction = direction
        self.owes = owes  # a response

    def check(self, buf: bytearray | memoryview, start: int, stop: int) -> None:
        """Replace a topic's name if it is ours."""
        direction = self._direction
        own = _own(direction.state)
        if (TOPIC, bytes(buf[start:stop])) not in own.wanted:
            return
        if not self.owes:
            raise _refused(direction, PRODUCE)
        if not self.stood_in:
            _count(direction.state, PRODUCE)
        _stand_in(own, self, TOPIC, buf, start, stop)
        direction.verdict.patches += 1


def _unusual_produce(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Replace Sluice's names in a Produce that may have any; close the connection where no response could refuse it."""
    _, key, version, _, _ = head
    state = direction.state
    if state.guarded is None:
        order = _look_at_front(direction, buf, pos, end, body, head)
        if order:
            return order
    watch = state.guarded
    order = produce.request(direction, buf, pos, end, body, head, now_ms)
    if order & UNDECIDED or watch is None:
        return order
    assert isinstance(watch, _Watch), "only a Produce is shown again"
    state.guarded = None
    if direction.walk is None and not watch.stood_in:
        direction.response_owed = watch.owes
        direction.walk = ProduceWalk(version, head[0], None)
        order = WALK
    if direction.walk is not None:
        direction.walk.watch = watch.check
    if watch.owes:
        correlation_id, version, owed = state.in_flight[-1]
        restored = _Restored(produce.NOT_MUTED if owed is None else owed, key, watch)
        state.in_flight[-1] = (correlation_id, version, restored)
    return order


def _look_at_front(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead
) -> int:
    """Check the transactional id and the first topic; set a watch on the state if further topics must be checked.

    Returns 0, or the order MORE.
    """
    length, key, _, _, _ = head
    _check_version(head)
    front = _front(buf, body, min(end, pos + 4 + length), head)
    if front is None:
        if end - pos > FRONT_BYTES_MAX:
            raise PeerError("malformed", f"no topic in the first {end - pos} bytes of a Produce")
        return direction.order_more(end - pos, length)
    transactional_id, acks, topics, name_at, name_end = front
    wanted = _own(direction.state).wanted
    if (TRANSACTIONAL_ID, transactional_id) in wanted:
        raise _refused(direction, key)
    if topics > 1:
        direction.state.guarded = _Watch(direction, owes=bool(acks))
    elif (TOPIC, bytes(buf[name_at:name_end])) in wanted:
        watch = _Watch(direction, owes=bool(acks))
        watch.check(buf, name_at, name_end)
        direction.state.guarded = watch
    elif name_end - body <= _PASSED_BYTES_MAX:
        direction.state.passed_front = bytes(buf[body:name_end])
        direction.state.passed_version = head[2]
    return 0


def _front(buf: Buffer, body: int, stop: int, head: RequestHead) -> tuple[bytes, int, int, int, int] | None:
    """Return a Produce's transactional id, acks, number of topics, and where the first one's name begins and ends.

    None if they have not arrived. A request without topics has no name: its range is empty.
    """
    version = head[2]
    compact = version >= _FLEXIBLE_SINCE
    pos = skip_header_tags(buf, body, stop, flexible=compact)
    if pos is None:
        return None
    transactional_id = b""
    try:
        if version >= _TRANSACTIONS_SINCE:
            start, end = string_span(buf, pos, stop, compact)
            transactional_id, pos = bytes(buf[start:end]), max(start, end)
        acks = int16(buf, pos, stop)
        topics, pos = streamed_count(buf, skip(pos, 6, stop), stop, compact)
        start, end = string_span(buf, pos, stop, compact) if topics > 0 else (pos, pos)
    except TruncatedError:
        return None
    return transactional_id, acks, topics, start, end


def _forward(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Call the API's own handler; without one, owe the response and forward the request unchanged."""
    handler = REQUEST_HANDLERS.get(head[1])
    if handler is not None:
        return handler(direction, buf, pos, end, body, head, now_ms)
    direction.state.in_flight.append((head[3], head[2], None))
    return 0


def _own(state: ChannelState) -> OwnNames:
    own = state.settings.own
    assert own is not None, "its handlers are used where there is something"
    return own


def _mentions(own: OwnNames, buf: Buffer, start: int, stop: int) -> bool:
    """Whether a name of ours is anywhere in these bytes."""
    return any(buf.find(part, start, stop) >= 0 for part in own.parts)


def _stand_in(
    own: OwnNames, guarded: Guarded, label: str, buf: bytearray | memoryview, start: int, stop: int
) -> None:
    """Replace one of Sluice's names, in place, by its stand-in of the same length."""
    stand_in = own.stand_ins[bytes(buf[start:stop])]
    buf[start:stop] = stand_in
    guarded.stood_in.add((label, stand_in))


def _check_version(head: RequestHead) -> None:
    """Refuse a version in which names could be anywhere, or topics have ids."""
    check_version(head, newest=NEWEST.get(head[1]))


def _count(state: ChannelState, key: int) -> None:
    """Count a refused request, and report it to `OwnNames.refused`."""
    api, identity = API_NAMES[key], state.identity
    state.stats.own_refusals[api] += 1
    client_id = "" if identity is None else identity.key.decode("utf-8", "backslashreplace")
    _own(state).refused(state.user, state.settings.address, client_id, api)


def _refused(direction: ChannelDirection, key: int) -> PeerError:
    """Return the error that closes the connection, for a request that no response can refuse."""
    _count(direction.state, key)
    return PeerError(_CAUSE, f"{API_NAMES[key]} names a topic, group or transactional id of Sluice's own")


_GUARDS: Final[dict[Treatment, _Handler]] = {
    Treatment.PRODUCE: _produce,
    Treatment.ITEMS: _items,
    Treatment.WHOLE: _whole_request,
    Treatment.CREATES: _metadata,
    Treatment.CLOSED: _between_brokers,
}

GUARDED_HANDLERS: Final[dict[int, _Handler]] = {
    **REQUEST_HANDLERS,
    **{key: _GUARDS[treatment] for key, treatment in TREATMENTS.items() if treatment in _GUARDS},
    STREAMS_GROUP_HEARTBEAT: _streams_request,
}
"""The handlers by API key, with the guard before those that need it."""
