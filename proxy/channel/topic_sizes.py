"""Sizes of topics, asked of the client's own broker on the client's own connection (KIP-599).

A request that deletes topics or adds partitions does not say how many there are. So a Metadata request goes
ahead of it, in the client's name and with the client's rights, and its answer never reaches the client. The
request waits for it, for as long as the broker takes: brokers answer one after the other, so a broker that
does not answer this would not answer the request either, and the client's own timeout ends both.

A topic that the broker does not know, or that the client may not see, has no size and counts nothing: the
request will fail for it.
"""

from collections.abc import Sequence

from protocol.header import REQUEST_HEAD
from protocol.messages import metadata_topics
from protocol.messages.topic_mutations import TOPICS_MAX, TopicMutation
from proxy.channel.bounds import SIZES_ANSWER_BYTES_MAX
from proxy.channel.in_flight import Buffer, Entry, InFlight, Owed
from proxy.channel.side import Side, copied
from proxy.channel.topic_lookup import TopicLookup

__all__ = ["asked_sizes"]


def asked_sizes(
    side: Side, frame: bytes, body: int, correlation_id: int, topics: Sequence[TopicMutation]
) -> TopicLookup | None:
    """The sizes of these topics; None with an order while they are being asked for.

    Args:
        frame: the whole request that waits; `body` is where its client id ends.
    """
    state = side.state
    lookup = state.lookup
    if lookup is None:
        lookup = TopicLookup()
        question = _ask(state.in_flight, lookup, frame[REQUEST_HEAD.size : body], correlation_id, topics)
        if not question:
            return lookup
        state.lookup = lookup
        state.stats.topic_lookups += lookup.pending
        side.replace(0, question)
        return None
    if lookup.pending:
        side.await_responses()
        return None
    state.lookup = None
    return lookup


def _ask(
    in_flight: InFlight,
    lookup: TopicLookup,
    client_id: bytes,
    correlation_id: int,
    topics: Sequence[TopicMutation],
) -> bytes:
    """Owe the answers, and give the questions: brokers that are asked for ids do not look at names."""
    question = b""
    names = list(dict.fromkeys(topic.name for topic in topics if topic.name is not None))
    topic_ids = list(dict.fromkeys(topic.topic_id for topic in topics if topic.name is None))
    if names:
        question += metadata_topics.request_by_name(names, correlation_id, client_id)
        in_flight.append((correlation_id, metadata_topics.BY_NAME_VERSION, _Sizes(lookup)))
        lookup.pending += 1
    if topic_ids:
        question += metadata_topics.request_by_id(topic_ids, correlation_id, client_id)
        in_flight.append((correlation_id, metadata_topics.BY_ID_VERSION, _Sizes(lookup)))
        lookup.pending += 1
    return question


class _Sizes(Owed):
    """The response to a question of Sluice's own."""

    __slots__ = ("_lookup",)

    def __init__(self, lookup: TopicLookup) -> None:
        self._lookup = lookup

    def respond(self, side: Side, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:  # noqa: ARG002 - see Owed
        """Take the sizes; the client, which has not asked, sees nothing of it."""
        length = side.frame_bytes - 4
        if not side.whole(end - pos, length, SIZES_ANSWER_BYTES_MAX):
            return side.verdict.order
        read, frame = metadata_topics.read_sizes, copied(buf, pos, pos + 4 + length)
        sizes = side.parse(read, frame, entry[1], TOPICS_MAX)
        if sizes is None:
            return side.verdict.order
        self._lookup.sizes.update(sizes)
        self._lookup.pending -= 1
        return side.replace(length + 4, b"")
