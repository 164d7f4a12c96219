"""Charges the topics that brokers create because of a Metadata request (KIP-204).

Kafka does not charge the client for them (KIP-599). Here a client with a partition mutation quota is charged:
- Request: while a bucket is overdrawn, the request is forwarded with allow_auto_topic_creation off. The response says
  that the topic is unknown, which the client may retry, and the topic is not created. Versions before 4 always create
  the topic; this cannot be turned off.
- Response: a topic that does not exist after such a request is awaited. When a response contains it with partitions,
  they are charged to the client that requested it first; only then is it known that the broker created the topic, and
  with how many partitions. A topic that CreateTopics has created in between is no longer awaited.

Limitations: a topic that is created without Sluice while a client awaits it is charged to that client. Responses of
more than AUTO_CREATED_RESPONSE_BYTES_MAX are not examined; clients then request each missing topic by itself. Switched
off by `quotas.charge_auto_created`.
"""

from collections.abc import Sequence
from typing import Final

from protocol.api import MAX_VERSION, METADATA, flexible
from protocol.header import RequestHead
from protocol.messages import metadata
from protocol.messages.metadata import TopicMetadata
from proxy.channel.bounds import REQUEST_BYTES_MAX
from proxy.channel.direction import ChannelDirection, copied, skip_header_tags
from proxy.channel.in_flight import Buffer
from quotas.throttles.mutation import MutationThrottle

# Topics examined in one turn of the loop: up to 5 us each, if one replaces another awaited topic.
_SETTLED_AT_ONCE: Final = 500
_UNKNOWN: Final = frozenset((3, 5))  # UNKNOWN_TOPIC_OR_PARTITION in KRaft, LEADER_NOT_AVAILABLE before


class AwaitedTopics:
    """The topics to look for in a response: those that this client's request may have created."""

    __slots__ = ("creates", "denied", "settled", "throttle", "topics")

    def __init__(self, throttle: MutationThrottle, *, creates: bool, denied: bool) -> None:
        self.throttle = throttle
        self.creates = creates
        self.denied = denied  # their creation was taken out of the request
        self.topics: Sequence[TopicMetadata] | None = None  # the response's topics, once parsed
        self.settled = 0  # how many of them were examined


def examine_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> AwaitedTopics | int | None:
    """Examine a Metadata request.

    Returns:
        The topics to look for in its response; None if there are none; or an order if the request is incomplete.
    """
    state = direction.state
    quotas = state.engine.mutations
    identity = state.identity
    if identity is None or not state.engine.options.charge_auto_created or not quotas.limiting():
        return None
    throttle = identity.quota.mutations
    if not throttle.limits(now_ms):
        return None
    length, _, version, _, _ = head
    if not 0 <= version <= MAX_VERSION[METADATA]:
        return None
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[METADATA]):
        return direction.verdict.order
    frame_end = pos + 4 + length
    fields_at = skip_header_tags(buf, body, frame_end, flexible=flexible(METADATA, version))
    if fields_at is None:
        return None
    request = direction.parse(metadata.read_request, copied(buf, pos, frame_end), fields_at - pos, version)
    if request is None:
        return direction.verdict.order
    if not request.names:
        return None
    denied = request.creates and request.creates_at >= 0 and throttle.enforcing and throttle.overdrawn(now_ms)
    if denied:
        buf[pos + request.creates_at] = 0
        direction.verdict.patches += 1
    return AwaitedTopics(throttle, creates=request.creates and not denied, denied=denied)


def settle(direction: ChannelDirection, awaiting: AwaitedTopics, now_ms: int) -> bool:
    """Examine a Metadata response for topics to charge or to await.

    Returns whether all topics have been examined, in this turn or before.
    """
    quotas = direction.state.engine.mutations
    topics = awaiting.topics or ()
    first, awaiting.settled = awaiting.settled, awaiting.settled + _SETTLED_AT_ONCE
    for topic in topics[first : awaiting.settled]:
        if topic.name is None:
            continue
        if topic.error_code in _UNKNOWN:
            if awaiting.denied:
                direction.state.stats.topics_rejected["Metadata"] += 1
            elif awaiting.creates and quotas.auto_creating.get(topic.name, now_ms) is None:
                quotas.auto_creating.put(topic.name, awaiting.throttle, now_ms)
        elif topic.partitions:
            creator = quotas.auto_creating.get(topic.name, now_ms)
            if creator is not None:
                quotas.auto_creating.forget((topic.name,))
                creator.record(topic.partitions, now_ms)
                creator.count_mutations(topic.partitions)
    return awaiting.settled >= len(topics)
