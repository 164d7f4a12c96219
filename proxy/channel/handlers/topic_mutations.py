"""CreateTopics 0-7, CreatePartitions 0-3 and DeleteTopics 0-6 under the partition mutation quota (KIP-599).

Also StreamsGroupHeartbeat 0-1 (KIP-1071), whose topology brokers create topics for; it is described at its handler.

Behavior: every topic costs the number of partitions to create, add or delete. From the strict versions on
(CreateTopics 6, CreatePartitions 3, DeleteTopics 5), a topic for which the bucket is overdrawn is removed from the
request and gets error 89; the others are forwarded, and one response contains all topics in the request's order. Older
versions are always accepted. In both cases the response contains the time for which the bucket stays overdrawn, and the
channel is muted; a strict request without rejected topics is not throttled, however much it overdraws.
Topics that fail at the broker cost nothing: their tokens are returned with the response, unless the request only timed
out. A topic that is named twice costs nothing either, since brokers refuse it. One such request is handled at a time on
a channel, as in brokers, so that pipelining does not bypass the mute. Without a quota all requests pass through.

Differences from Kafka: a broker checks the bucket last, so a topic that cannot be created has its own error even if
the bucket is overdrawn; here error 89 comes first.

Version notes: throttle_time_ms since CreateTopics 2, CreatePartitions 0, DeleteTopics 1; CreateTopics 5+ returns the
number of partitions of the broker's default. A later version ends the connection if there is a quota (ApiVersions
never offered it).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import pack_into
from typing import Final

from protocol import layouts
from protocol import throttle as throttle_time
from protocol.api import API_NAMES, CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, STREAMS_GROUP_HEARTBEAT
from protocol.errors import TruncatedError
from protocol.header import REQUEST_HEAD, RequestHead, response_body_start
from protocol.messages import metadata, streams
from protocol.messages import topic_mutations as requests
from protocol.messages import topic_mutations as responses
from protocol.messages.topic_mutations import NO_TOPIC_ID, TOPICS_MAX, MutationRequest, TopicMutation
from protocol.primitives import int16, skip
from proxy.channel.direction import (
    Buffer,
    ChannelDirection,
    ChannelState,
    Entry,
    InFlight,
    Owed,
    TopicLookup,
    check_version,
    copied,
    fields_of,
)
from proxy.channel.errors import REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX, SIZES_RESPONSE_BYTES_MAX
from quotas.throttles.mutation import InternalTopic, MutationThrottle

# Sizes of topics, requested from the client's own broker on the client's connection (KIP-599).
#
# A request that deletes topics or adds partitions does not contain their current number. So a Metadata request is sent
# before it, in the client's name and with the client's rights; the client never sees the response. The request waits
# as long as the broker takes: brokers respond in order, so without this response there would be none to the request
# either, and the client's own timeout ends both.
#
# A topic that is unknown to the broker, or that the client may not see, has no size and costs nothing: the request
# will fail for it.
#
# Non-obvious:
#
# - A request may wait for a response that the client did not ask for. Deleting and growing topics first asks for their
#   sizes on the client's own connection (`proxy/channel/handlers/topic_mutations.py`); that response is dropped, and
#   the request is shown again.


def request_sizes(
    direction: ChannelDirection, frame: bytes, body: int, correlation_id: int, topics: Sequence[TopicMutation]
) -> TopicLookup | None:
    """Return the partition counts of these topics; None, with an order, while they are requested from the broker.

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


@dataclass(slots=True, eq=False)
class _SizesResponse(Owed):
    """The response to a Metadata request of Sluice's own."""

    _lookup: TopicLookup

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Store the topics' partition counts; the response is dropped, since Sluice itself has requested it."""
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


# With these errors the mutation may have succeeded.
_REQUEST_TIMED_OUT: Final = 7
# The most that a topic is charged before it exists: no broker creates more at once (Kafka's own bound of a request). An
# impossible number must not leave years of debt if the response is lost. An existing topic is charged in full.
_CHARGED_AHEAD_MAX: Final = 10_000


# Topics whose results are compared in one turn of the loop: 1 to 2 us each.
_SETTLED_AT_ONCE: Final = 1000
# The memory of a topic in a request, in addition to its bytes in the frame.
_TOPIC_BYTES: Final = 512


@dataclass(slots=True)
class _ChargedMutation(Owed):
    """A request that was charged and forwarded, and awaits its response.

    Attributes:
        costs: the cost of each topic in the request, in partitions.
        refused: the indices of the topics that got no tokens, and so were not charged.
        rejected: the same topics if the quota is enforced: they were not forwarded. Otherwise empty.
        read: the response as `read_and_merge` returns it, once parsed.
        settled: the number of topics whose results were compared.
        kept_bytes: the memory that is counted as kept, in bytes.
    """

    key: int
    throttle: MutationThrottle
    asked: MutationRequest
    costs: Sequence[int]
    refused: frozenset[int]
    rejected: frozenset[int]
    strict: bool
    read: tuple[int, Sequence[responses.TopicResult | None], bytes] | None = None
    settled: int = 0
    kept_bytes: int = 0

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Give back the tokens of failed topics, add rejected topics and throttle time to the response, and mute."""
        length = direction.frame_bytes - 4
        version = entry[1]
        key, throttle, asked, rejected = self.key, self.throttle, self.asked, self.rejected
        if not direction.whole(end - pos, length, RESPONSE_BYTES_MAX[key]):
            return direction.verdict.order
        if self.read is None:
            whole = copied(buf, pos, pos + 4 + length)
            self.read = direction.parse(responses.read_and_merge, whole, key, version, asked.topics, rejected)
            if self.read is None:
                return direction.verdict.order
        throttle_at, results, merged = self.read
        state = direction.state
        if not _settle(state, self, results, now_ms):
            return direction.next_turn()
        state.mutations_owed -= 1
        state.queued_bytes -= self.kept_bytes
        throttle_ms = throttle.throttle_ms(now_ms) if rejected or not self.strict else 0
        if throttle_ms and not throttle.enforcing:
            throttle.predict(throttle_ms, now_ms, state.virtual_time)
            throttle_ms = 0
        reported_ms = _mute(state, throttle, throttle_ms, now_ms)
        if reported_ms:
            direction.verdict.signal = True
        if not rejected and not reported_ms:
            return 0
        patched = bytearray(merged)
        if throttle_at >= 0 and reported_ms > int.from_bytes(
            patched[throttle_at : throttle_at + 4], "big", signed=True
        ):
            pack_into(">i", patched, throttle_at, reported_ms)
        return direction.replace(length + 4, patched)


def _limiting_throttle(state: ChannelState, now_ms: int) -> MutationThrottle | None:
    """Return what counts the client's partition mutations; None if no quota limits them."""
    assert state.identity is not None, "the request direction has set it"
    if not state.engine.mutations.limiting():
        return None
    throttle = state.identity.quota.mutations
    return throttle if throttle.limits(now_ms) else None


def request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle CreateTopics, CreatePartitions or DeleteTopics: charge it, and forward the topics within the quota.

    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    state = direction.state
    throttle = _limiting_throttle(state, now_ms)
    if throttle is None:
        return _forward_unchanged(state, correlation_id, version)
    check_version(head)
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
        return direction.verdict.order
    if state.mutations_owed:
        return direction.await_responses()
    frame = copied(buf, pos, pos + 4 + length)
    asked = direction.parse(
        requests.read_request, frame, fields_of(frame, body - pos, len(frame), head), key, version
    )
    if asked is None:
        return direction.verdict.order
    if asked.validate_only and not state.engine.options.charge_validate_only:
        return _forward_unchanged(state, correlation_id, version)
    lookup = TopicLookup()
    if key != CREATE_TOPICS:
        known = request_sizes(direction, frame, body - pos, correlation_id, asked.topics)
        if known is None:
            return direction.verdict.order
        lookup = known
    charged = _charge(state, throttle, key, version, asked, _costs(state, key, asked, lookup, now_ms), now_ms)
    return _forward(direction, frame, version, correlation_id, charged, now_ms)


def _forward_unchanged(state: ChannelState, correlation_id: int, version: int) -> int:
    """Owe a response that is forwarded unchanged."""
    state.lookup = None
    state.in_flight.append((correlation_id, version, None))
    return 0


def _costs(
    state: ChannelState, key: int, asked: MutationRequest, lookup: TopicLookup, now_ms: int
) -> list[int]:
    """Return the cost of each topic in partitions; 0 if the broker can only refuse it."""
    quotas = state.engine.mutations
    costs = []
    for topic in asked.topics:
        cost = topic.partitions
        if key == CREATE_TOPICS:
            if cost == requests.DEFAULT_PARTITIONS:
                cost = quotas.default_partitions
        else:
            known = topic.topic_id if topic.name is None else topic.name
            # Sizes learned from requests on this channel are newer than the broker's metadata.
            size = max(lookup.sizes.get(known, 0), quotas.sizes.get(known, now_ms) or 0)
            if key == DELETE_TOPICS:
                cost = size
            elif size:
                cost -= size
            else:
                cost = 0
        costs.append(max(cost, 0) if not asked.repeated or topic.key not in asked.repeated else 0)
    return costs


def _charge(
    state: ChannelState,
    throttle: MutationThrottle,
    key: int,
    version: int,
    asked: MutationRequest,
    costs: list[int],
    now_ms: int,
) -> _ChargedMutation:
    """Take tokens for each topic, as Kafka does; returns what was charged, with the topics that got no tokens."""
    strict = version >= requests.STRICT_SINCE[key]
    ahead = [min(cost, _CHARGED_AHEAD_MAX) for cost in costs]
    refused: frozenset[int] = frozenset()
    if strict:
        refused = frozenset(throttle.take_each(ahead, now_ms))
    else:
        throttle.record(sum(ahead), now_ms)
    rejected: frozenset[int] = frozenset()
    if refused and throttle.enforcing:
        rejected = refused
        state.stats.topics_rejected[API_NAMES[key]] += len(refused)
    elif refused:
        throttle.predict(throttle.throttle_ms(now_ms), now_ms, state.virtual_time)
        state.stats.topics_would_reject[API_NAMES[key]] += len(refused)
    return _ChargedMutation(key, throttle, asked, costs, refused, rejected, strict)


def _forward(
    direction: ChannelDirection,
    frame: bytes,
    version: int,
    correlation_id: int,
    charged: _ChargedMutation,
    now_ms: int,
) -> int:
    """Forward the request, whole or without the rejected topics; respond locally if no topic is left."""
    state = direction.state
    key, throttle, asked, rejected = charged.key, charged.throttle, charged.asked, charged.rejected
    if rejected and len(rejected) == len(asked.topics):
        reported_ms = _mute(state, throttle, throttle.throttle_ms(now_ms), now_ms)
        response = responses.local_response(asked.topics, key, version, correlation_id, reported_ms)
        state.respond_locally(correlation_id, version, response)
        state.stats.requests[key] += 1
        direction.verdict.signal = True
        return direction.replace(len(frame), b"")
    state.in_flight.append((correlation_id, version, charged))
    state.mutations_owed += 1
    charged.kept_bytes = len(frame) + len(asked.topics) * _TOPIC_BYTES
    state.queued_bytes += charged.kept_bytes
    if not rejected:
        return 0
    kept = [topic for index, topic in enumerate(asked.topics) if index not in rejected]
    state.stats.requests[key] += 1
    return direction.replace(len(frame), requests.keep_topics(frame, asked, kept, key, version))


def _mute(state: ChannelState, throttle: MutationThrottle, throttle_ms: int, now_ms: int) -> int:
    """Mute the channel and return the throttle time for the response.

    The response has the KIP's full throttle time, since an earlier retry is rejected again; group members, which may
    also delay their heartbeats by it, get no more than the mute.
    """
    if not throttle_ms:
        return 0
    throttle.count(throttle_ms)
    muted_ms = state.mute(throttle, throttle_ms, now_ms)
    return throttle_ms if state.mute_limits.group_session_timeout_ms is None else muted_ms


def _settle(
    state: ChannelState,
    charged: _ChargedMutation,
    results: Sequence[responses.TopicResult | None],
    now_ms: int,
) -> bool:
    """Correct the charges of the next `_SETTLED_AT_ONCE` topics by the broker's results; returns whether all
    are settled.
    """
    key, throttle, asked = charged.key, charged.throttle, charged.asked
    first, charged.settled = charged.settled, charged.settled + _SETTLED_AT_ONCE
    for index in range(first, min(charged.settled, len(asked.topics))):
        topic, cost, result = asked.topics[index], charged.costs[index], results[index]
        if result is None or index in charged.rejected:
            continue
        actual = cost
        if result.error_code:
            actual = cost if result.error_code == _REQUEST_TIMED_OUT else 0
        elif key == CREATE_TOPICS and result.partitions > 0:
            actual = result.partitions
            if topic.partitions == requests.DEFAULT_PARTITIONS:
                state.engine.mutations.default_partitions = actual
        ahead = min(cost, _CHARGED_AHEAD_MAX)
        if actual != ahead and index not in charged.refused:
            throttle.record(actual - ahead, now_ms)
        if not result.error_code and not asked.validate_only:
            throttle.count_mutations(actual)
            _store_sizes(state, key, topic, result, actual, now_ms)
    return charged.settled >= len(asked.topics)


def _store_sizes(
    state: ChannelState,
    key: int,
    topic: TopicMutation,
    result: responses.TopicResult,
    actual: int,
    now_ms: int,
) -> None:
    """Store a topic's new number of partitions, which not all brokers may know yet."""
    quotas = state.engine.mutations
    known: list[str | bytes] = [] if result.name is None else [result.name]
    if result.topic_id != requests.NO_TOPIC_ID:
        known.append(result.topic_id)
    if key == DELETE_TOPICS:
        quotas.sizes.forget(known)
        if result.name is not None:
            quotas.internal_topics.forget((result.name,))  # it has to be paid for anew
        return
    for name_or_id in known:
        quotas.sizes.put(name_or_id, topic.partitions if key == CREATE_PARTITIONS else actual, now_ms)
    if result.name is not None:
        quotas.auto_creating.forget((result.name,))  # created explicitly, and charged to its creator


# StreamsGroupHeartbeat (KIP-1071). A broker creates the internal topics of the topology that a member joins with, and
# Kafka charges them to no client. Here they are charged to the member's client, before the request is forwarded: the
# sizes of all topics of the topology are looked up on the client's own connection, and what lacks costs its partitions
# (`protocol.messages.streams`). While a bucket is overdrawn, a request that would create topics is not forwarded and
# gets COORDINATOR_LOAD_IN_PROGRESS, after which Kafka Streams tries again; no version has THROTTLING_QUOTA_EXCEEDED.
#
# A request that fails costs nothing. One that the broker accepts costs its topics even if it creates none: the client
# may lack the right to, or a source topic may be missing. Then an internal topic without a number of its own costs one
# partition, since how many there will be is not known yet. All members of a group send its topology when they join, so
# partitions that were charged in the last 10 s are not charged again; what was charged once for several members is not
# given back.
#
# Heartbeats without a topology are forwarded as all heartbeats are, and mutes end as early as for these. Ignored: all
# fields behind the topology.

_COORDINATOR_LOAD_IN_PROGRESS: Final = 14
# Reading a byte of a topology and what follows takes as long as reading this many more of other requests.
_TOPOLOGY_WEIGHT: Final = 7
_NAME_CHARACTERS_MAX: Final = 249  # of a topic; no broker creates one with a longer name


@dataclass(slots=True, eq=False)
class _Joined(Owed):
    """The response to a request whose internal topics were charged.

    Attributes:
        charged: the topics that were charged by name, with what each costs.
        cost: what was charged for all.
        kept_bytes: the memory that is counted as kept, in bytes.
    """

    throttle: MutationThrottle
    charged: Mapping[str, tuple[int, InternalTopic]]
    cost: int
    kept_bytes: int

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, _entry: Entry, now_ms: int
    ) -> int:
        """Give the tokens back if the broker has refused the request."""
        length = direction.frame_bytes - 4
        try:
            fields_at = response_body_start(buf, pos, end, STREAMS_GROUP_HEARTBEAT, 0)
            error_code = int16(buf, skip(fields_at, 4, end), end)  # after the throttle time
        except TruncatedError:
            return direction.order_more(end - pos, length)
        state = direction.state
        state.mutations_owed -= 1
        state.queued_bytes -= self.kept_bytes
        counted = self.cost
        if error_code:
            recent = state.engine.mutations.internal_topics
            counted = sum(cost for cost, topic in self.charged.values() if topic.shared)
            self.throttle.record(counted - self.cost, now_ms)
            for name, (_, topic) in self.charged.items():
                if not topic.shared and recent.get(name, now_ms) is topic:
                    recent.forget((name,))
        self.throttle.count_mutations(counted)
        return 0


def streams_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle a StreamsGroupHeartbeat: charge the internal topics of its topology, if it has one.

    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    state = direction.state
    state.note_session_timeout(0)
    if _limiting_throttle(state, now_ms) is None:
        return _forward_unchanged(state, correlation_id, version)
    check_version(head)
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
        return direction.verdict.order
    if state.mutations_owed:
        return direction.await_responses()
    frame = copied(buf, pos, pos + 4 + length)
    fields_at = fields_of(frame, body - pos, len(frame), head)
    weight = _TOPOLOGY_WEIGHT * len(frame)
    if state.lookup is None:
        names = direction.parse(streams.read_names, frame, fields_at, weight=weight)
        if names is None:
            return direction.verdict.order
        if not names:
            return _forward_unchanged(state, correlation_id, version)
        asked = [TopicMutation(name, NO_TOPIC_ID, 0, 0, 0) for name in names]
        request_sizes(direction, frame, body - pos, correlation_id, asked)
        _know_recent(state, names, now_ms)
        return direction.verdict.order
    if state.lookup.pending:
        return direction.await_responses()
    created = direction.parse(
        streams.read_new_partitions, frame, fields_at, state.lookup.sizes, weight=weight
    )
    if created is None:
        return direction.verdict.order
    state.lookup = None
    return _join(direction, frame, fields_at, head, created, now_ms)


def _know_recent(state: ChannelState, names: Sequence[str], now_ms: int) -> None:
    """Take the sizes of topics that were created moments ago as known, unless the broker has others."""
    recent = state.engine.mutations.sizes
    assert state.lookup is not None, "the sizes are looked up"
    for name in names:
        size = recent.get(name, now_ms)
        if size:
            state.lookup.sizes[name] = size


def _join(
    direction: ChannelDirection,
    frame: bytes,
    fields_at: int,
    head: RequestHead,
    created: Mapping[str, int],
    now_ms: int,
) -> int:
    """Charge the topics that a broker will create for a member, or respond that it is to try again."""
    _, key, version, correlation_id, _ = head
    state = direction.state
    assert state.identity is not None, "the request direction has set it"
    throttle = state.identity.quota.mutations
    recent = state.engine.mutations.internal_topics
    known: dict[str, InternalTopic] = {}
    for name in created:
        found = recent.get(name, now_ms)
        if found is not None:
            known[name] = found
    charged = _charged_for(created, known)
    whole_cost = sum(partitions for partitions, _ in charged.values())
    cost = min(whole_cost, _CHARGED_AHEAD_MAX)
    if not cost or throttle.take(cost, now_ms):
        for shared in known.values():
            shared.shared = True
        if not cost:
            return _forward_unchanged(state, correlation_id, version)
        # No broker creates more at once. A part of them, in a later request, is not paid for.
        if cost == whole_cost:
            for name, (_, topic) in charged.items():
                if len(name) <= _NAME_CHARACTERS_MAX:
                    recent.put(name, topic, now_ms)
        kept_bytes = sum(len(name) + _TOPIC_BYTES for name in charged)
        state.in_flight.append((correlation_id, version, _Joined(throttle, charged, cost, kept_bytes)))
        state.mutations_owed += 1
        state.queued_bytes += kept_bytes
        return 0
    throttle_ms = throttle.throttle_ms(now_ms)
    if not throttle.enforcing:
        throttle.predict(throttle_ms, now_ms, state.virtual_time)
        state.stats.topics_would_reject[API_NAMES[key]] += len(created)
        return _forward_unchanged(state, correlation_id, version)
    error_code = _COORDINATOR_LOAD_IN_PROGRESS
    response = bytearray(layouts.refusal(frame, fields_at, key, version, correlation_id, error_code))
    throttle_time.patch(response, key, version, _mute(state, throttle, throttle_ms, now_ms))
    state.stats.topics_rejected[API_NAMES[key]] += len(created)
    state.stats.requests[key] += 1
    state.respond_locally(correlation_id, version, response)
    direction.verdict.signal = True
    return direction.replace(len(frame), b"")


def _charged_for(
    created: Mapping[str, int], known: Mapping[str, InternalTopic]
) -> dict[str, tuple[int, InternalTopic]]:
    """Return the topics that have more partitions than were charged recently, with the number of these."""
    charged = {}
    for name, partitions in created.items():
        more = partitions - known[name].partitions if name in known else partitions
        if more > 0:
            charged[name] = (more, InternalTopic(partitions))
    return charged
