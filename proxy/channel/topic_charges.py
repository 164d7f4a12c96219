"""Charges a walk's bytes to topics, and mutes the channel for the topic with the longest throttle time.

Kafka has no topic quotas; the rest is KIP-219: the channel is muted at the end of the frame that exceeded the quota. A
Produce's response, which comes later, contains the throttle time. Nothing is returned for records that the broker
refused: with acks=0 there is no response, and otherwise every request's topics would be kept until it arrives. A Fetch
response has its throttle time in its head, before the topics are known: only the mute delays the next request. A frame
of many topics is charged in parts while it passes, so a topic's position in it does not matter.

A topic id without a known name is charged when its name is known (`TopicQuotas.charge_unnamed`). Counted but not
charged are impossible names, which brokers refuse, and ids beyond those that can be looked up at once. If no topic is
limited, no walk is begun (`Engine.charges_produced_topics`, `charges_fetched_topics`).

Non-obvious:

- A frame's topics are charged in parts of 250, each in a separate turn of the loop; so a frame of millions delays
  nothing, and all of them are charged.
"""

import string
from typing import Final

from protocol.walks.walk import OTHER_TOPICS, Walk
from proxy.channel.state import ChannelState
from quotas.throttles.bandwidth import FETCH, PRODUCE

# The characters of a Kafka topic name. A client may send any bytes, and a name may become a throttle.
_NAME_BYTES: Final = (string.ascii_letters + string.digits + "._-").encode()


def charge_produced(state: ChannelState, walk: Walk, now_ms: int, *, response_owed: bool) -> None:
    """Charge the topics of a walked Produce.

    Args:
        response_owed: whether it has a response; that is then the last one owed, since requests pass one by one.
    """
    until_ms = _charge(state, PRODUCE, walk, now_ms)
    if until_ms and response_owed and state.in_flight:
        correlation_id, version, owed = state.in_flight[-1]
        assert owed is not None, "the response to a walked Produce reports its throttle time"
        state.in_flight[-1] = (correlation_id, version, owed.muted(until_ms))


def charge_fetched(state: ChannelState, walk: Walk, now_ms: int) -> bool:
    """Charge the topics of a walked response to a Fetch or ShareFetch; returns whether a mute has begun."""
    return _charge(state, FETCH, walk, now_ms) > 0


def _charge(state: ChannelState, key: str, walk: Walk, now_ms: int) -> int:
    """Charge all topics; returns the end of the mute for them, 0 for none."""
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
    longest = topics.charge(key, broker, found, now_ms, state.virtual_time)
    return 0 if longest is None else now_ms + state.mute(*longest, now_ms)
