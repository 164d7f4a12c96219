"""Topics that brokers create because a Metadata request asks for them (KIP-599 left them out; KIP-204).

Kafka could not count them for the client: here a client under a partition mutation quota pays for them.
- Asking: while a bucket is overdrawn, the request passes with allow_auto_topic_creation off. The client hears
  that the topic is not known, which it may ask again, and the topic is not created. Versions before 4 always
  create, and cannot be told not to.
- Hearing: a topic that is not there after being asked for like that is awaited. When an answer shows it with
  partitions, they are charged to the client that asked first, since only then is it known that the broker created it,
  and how large. A topic that CreateTopics made meanwhile is not awaited any more.

What it does not see: a topic that is created past Sluice while a client waits for it is charged to that client; and
answers of more than AUTO_CREATED_ANSWER_BYTES_MAX are not looked through, since clients ask again for the single topics
they miss. Switched off by `quotas.charge_auto_created`.
"""

from collections.abc import Sequence
from typing import Final

from protocol.api import MAX_VERSION, METADATA, flexible
from protocol.header import RequestHead
from protocol.messages import metadata_topics
from protocol.messages.metadata_topics import TopicSeen
from proxy.channel.bounds import REQUEST_BYTES_MAX
from proxy.channel.in_flight import Buffer
from proxy.channel.side import Side, copied, skip_header_tags
from quotas.throttles.mutation import MutationThrottle

__all__ = ["Awaiting", "asked", "heard"]

# Topics that are looked at in one turn of the loop: up to 5 us each, where one is awaited in place of another.
_HEARD_AT_ONCE: Final = 500
_UNKNOWN: Final = frozenset((3, 5))  # UNKNOWN_TOPIC_OR_PARTITION in KRaft, LEADER_NOT_AVAILABLE before


class Awaiting:
    """What an answer is looked through for: topics that this client's request may have created."""

    __slots__ = ("creates", "denied", "heard", "seen", "throttle")

    def __init__(self, throttle: MutationThrottle, *, creates: bool, denied: bool) -> None:
        self.throttle = throttle
        self.creates = creates
        self.denied = denied  # it was taken from the request that it creates
        self.seen: Sequence[TopicSeen] | None = None  # the answer's topics, once they were read
        self.heard = 0  # how many of them were looked at


def asked(
    side: Side, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> Awaiting | int | None:
    """Look at a Metadata request: None where its answer needs no look, an order where it is not all there or read."""
    state = side.state
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
    if not side.whole(end - pos, length, REQUEST_BYTES_MAX[METADATA]):
        return side.verdict.order
    frame_end = pos + 4 + length
    fields_at = skip_header_tags(buf, body, frame_end, flexible=flexible(METADATA, version))
    if fields_at is None:
        return None
    request = side.parse(metadata_topics.read_request, copied(buf, pos, frame_end), fields_at - pos, version)
    if request is None:
        return side.verdict.order
    if not request.names:
        return None
    denied = request.creates and request.creates_at >= 0 and throttle.enforcing and throttle.overdrawn(now_ms)
    if denied:
        buf[pos + request.creates_at] = 0
        side.verdict.patches += 1
    return Awaiting(throttle, creates=request.creates and not denied, denied=denied)


def heard(side: Side, awaiting: Awaiting, now_ms: int) -> bool:
    """Look through a Metadata answer's topics for those that are to be charged, or that may be; whether all were looked
    at, in this turn or before.
    """
    quotas = side.state.engine.mutations
    seen = awaiting.seen or ()
    first, awaiting.heard = awaiting.heard, awaiting.heard + _HEARD_AT_ONCE
    for topic in seen[first : awaiting.heard]:
        if topic.name is None:
            continue
        if topic.error_code in _UNKNOWN:
            if awaiting.denied:
                side.state.stats.topics_rejected["Metadata"] += 1
            elif awaiting.creates and quotas.awaited.get(topic.name, now_ms) is None:
                quotas.awaited.put(topic.name, awaiting.throttle, now_ms)
        elif topic.partitions:
            creator = quotas.awaited.get(topic.name, now_ms)
            if creator is not None:
                quotas.awaited.forget((topic.name,))
                creator.record(topic.partitions, now_ms)
                creator.done(topic.partitions)
    return awaiting.heard >= len(seen)
