"""What a walk has measured is charged to the topics, and the channel is muted for the one that is most over its quota.

Kafka has no quotas on topics; the rest is KIP-219: the channel is muted at the end of the frame that was too much.
A Produce's answer, which is yet to come, tells the time; it gives nothing back, though the broker may have refused
the records: with acks=0 there is none, and until it comes every request's topics would have to be kept. A Fetch's
answer has told its throttle time at its head, long before it was known: there the mute alone holds back the next
request. A frame of many topics is charged in parts while it passes, so where a topic stands in it does not matter.

Named by an id whose name is not known yet, a topic is charged when its name is (`TopicQuotas.charge_unnamed`). Not
charged, but counted, are topics named as none can be, which brokers refuse, and ids beyond what can be asked for at
once. Where nothing limits topics no walk is begun (`Engine.charges_produced_topics`, `charges_fetched_topics`).
"""

import string
from typing import Final

from protocol.walks.walk import OTHER_TOPICS, Walk
from proxy.channel.state import ChannelState
from quotas.throttles.bandwidth import FETCH, PRODUCE

__all__ = ["fetched", "produced"]

# What Kafka lets a topic's name consist of. A client may send anything, and a name may become a throttle.
_NAME_BYTES: Final = (string.ascii_letters + string.digits + "._-").encode()


def produced(state: ChannelState, walk: Walk, now_ms: int, *, answered: bool) -> None:
    """A Produce has been walked through.

    Args:
        answered: whether an answer is owed to it: the last one then, since requests pass one after the other.
    """
    until_ms = _charge(state, PRODUCE, walk, now_ms)
    if until_ms and answered and state.in_flight:
        correlation_id, version, owed = state.in_flight[-1]
        assert owed is not None, "a Produce that is walked owes what tells its throttle time"
        state.in_flight[-1] = (correlation_id, version, owed.muted(until_ms))


def fetched(state: ChannelState, walk: Walk, now_ms: int) -> bool:
    """An answer to a Fetch or ShareFetch has been walked through; whether a mute has begun."""
    return _charge(state, FETCH, walk, now_ms) > 0


def _charge(state: ChannelState, key: str, walk: Walk, now_ms: int) -> int:
    """Charge all topics; until when the channel is muted for them, 0 for not at all."""
    topics = state.engine.topics
    broker = state.settings.broker
    found: dict[str, int] = {}
    for raw, size in walk.take_sizes().items():
        if raw == OTHER_TOPICS:
            name = None
        elif walk.by_id:
            name = topics.names.name(raw, now_ms) or topics.charge_unnamed(key, broker, raw, size, now_ms)
        elif raw.translate(None, _NAME_BYTES):
            name = None
        else:
            name = raw.decode("ascii")
        if name is None:
            state.stats.topic_bytes_uncharged += size
        elif name:
            found[name] = found.get(name, 0) + size
    longest = topics.charge(key, broker, found, now_ms)
    return 0 if longest is None else now_ms + state.mute(*longest, now_ms)
