"""Sizes of topics, requested from the client's own broker on the client's connection (KIP-599).

A request that deletes topics or adds partitions does not contain their current number. So a Metadata request is sent
before it, in the client's name and with the client's rights; the client never sees the response. The request waits as
long as the broker takes: brokers respond in order, so without this response there would be none to the request either,
and the client's own timeout ends both.

A topic that is unknown to the broker, or that the client may not see, has no size and costs nothing: the request will
fail for it.

Non-obvious:

- A request may wait for a response that the client did not ask for. Deleting and growing topics first asks for
  their sizes on the client's own connection (`proxy/channel/topic_sizes.py`); that response is dropped, and the
  request is shown again.
"""

from collections.abc import Sequence

from protocol.header import REQUEST_HEAD
from protocol.messages import metadata
from protocol.messages.topic_mutations import TOPICS_MAX, TopicMutation
from proxy.channel.bounds import SIZES_RESPONSE_BYTES_MAX
from proxy.channel.direction import ChannelDirection, copied
from proxy.channel.in_flight import Buffer, Entry, InFlight, Owed
from proxy.channel.topic_lookup import TopicLookup


def request_sizes(
    direction: ChannelDirection, frame: bytes, body: int, correlation_id: int, topics: Sequence[TopicMutation]
) -> TopicLookup | None:
    """Return the sizes of these topics; None with an order while they are being requested.

    Args:
        frame: the whole waiting request; its client id ends at `body`.
    """
    state = direction.state
    lookup = state.lookup
    if lookup is None:
        lookup = TopicLookup()
        lookups = _owe_lookups(
            state.in_flight, lookup, frame[REQUEST_HEAD.size : body], correlation_id, topics
        )
        if not lookups:
            return lookup
        state.lookup = lookup
        state.stats.topic_lookups += lookup.pending
        direction.replace(0, lookups)
        return None
    if lookup.pending:
        direction.await_responses()
        return None
    state.lookup = None
    return lookup


def _owe_lookups(
    in_flight: InFlight,
    lookup: TopicLookup,
    client_id: bytes,
    correlation_id: int,
    topics: Sequence[TopicMutation],
) -> bytes:
    """Owe the responses, and return the requests: with topic ids, brokers ignore names."""
    lookups = b""
    names = list(dict.fromkeys(topic.name for topic in topics if topic.name is not None))
    topic_ids = list(dict.fromkeys(topic.topic_id for topic in topics if topic.name is None))
    if names:
        lookups += metadata.request_by_name(names, correlation_id, client_id)
        in_flight.append((correlation_id, metadata.BY_NAME_VERSION, _SizesResponse(lookup)))
        lookup.pending += 1
    if topic_ids:
        lookups += metadata.request_by_id(topic_ids, correlation_id, client_id)
        in_flight.append((correlation_id, metadata.BY_ID_VERSION, _SizesResponse(lookup)))
        lookup.pending += 1
    return lookups


class _SizesResponse(Owed):
    """The response to a Metadata request of Sluice's own."""

    __slots__ = ("_lookup",)

    def __init__(self, lookup: TopicLookup) -> None:
        self._lookup = lookup

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Take the sizes; nothing is forwarded to the client."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, SIZES_RESPONSE_BYTES_MAX):
            return direction.verdict.order
        read, frame = metadata.read_sizes, copied(buf, pos, pos + 4 + length)
        sizes = direction.parse(read, frame, entry[1], TOPICS_MAX)
        if sizes is None:
            return direction.verdict.order
        self._lookup.sizes.update(sizes)
        self._lookup.pending -= 1
        return direction.replace(length + 4, b"")
