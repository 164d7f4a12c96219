"""CreateTopics 0-7, CreatePartitions 0-3 and DeleteTopics 0-6, topic by topic (KIP-599).

Of each topic in a request the name or id, the number of partitions, and the position of its bytes are read. So topics
can be removed from a request while all other bytes stay unchanged. The caller decides what a topic costs.

A response is parsed likewise, and has entries created for topics that were not forwarded: a rejected topic gets error
89, and Kafka's own message in versions with messages. A response's entries are matched to the request's topics by name
or id, since a broker may return another order (it shuffles those of DeleteTopics). All other fields of an entry are
kept as bytes.

Version notes: flexible since CreateTopics 5, CreatePartitions 2, DeleteTopics 4; validate_only since CreateTopics 1,
always in CreatePartitions, never in DeleteTopics; num_partitions -1 (KIP-464) since CreateTopics 4; DeleteTopics has
topic ids since 6 (KIP-516).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, MAX_VERSION, flexible
from protocol.errors import MalformedFieldError, OversizedError, UnknownVersionError
from protocol.header import response_body_start
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int16,
    int32,
    skip,
    skip_string,
    skip_tags,
    streamed_count,
    string,
    string_bytes,
)

NO_TOPIC_ID: Final = bytes(16)
# num_partitions for the broker's default.
DEFAULT_PARTITIONS: Final = -1
# The first versions whose clients know error 89 (KIP-599).
STRICT_SINCE: Final = {CREATE_TOPICS: 6, CREATE_PARTITIONS: 3, DELETE_TOPICS: 5}

# The most topics of one request. A KRaft controller rejects a request for more than 10,000 records
# (MAX_RECORDS_PER_USER_OP).
TOPICS_MAX: Final = 10_000

_IDS_SINCE: Final = 6
_VALIDATE_ONLY_SINCE: Final = 1
_INT32: Final = Struct(">i")

THROTTLING_QUOTA_EXCEEDED: Final = 89
_MESSAGE: Final = "The throttling quota has been exceeded."

_THROTTLE_SINCE: Final = {CREATE_TOPICS: 2, CREATE_PARTITIONS: 0, DELETE_TOPICS: 1}
_MESSAGE_SINCE: Final = {CREATE_TOPICS: 1, CREATE_PARTITIONS: 0, DELETE_TOPICS: 5}
_ID_SINCE: Final = {CREATE_TOPICS: 7, DELETE_TOPICS: 6}
_CREATED_SINCE: Final = 5  # CreateTopics returns the number of partitions and the configs
_INT16: Final = Struct(">h")

_NOT_CREATED: Final = Struct(">ih").pack(-1, -1)  # partitions and replication factor of a topic that failed


class TopicMutation(NamedTuple):
    """One topic of a CreateTopics, CreatePartitions or DeleteTopics request.

    Attributes:
        name: None if the request has the topic's id.
        topic_id: 16 bytes; zeros if the request has the topic's name.
        partitions: in CreateTopics the number of partitions to create, -1 for the broker's default; in CreatePartitions
            the new total; in DeleteTopics 0.
        start, end: the range of its bytes in the frame.
    """

    name: str | None
    topic_id: bytes
    partitions: int
    start: int
    end: int

    @property
    def key(self) -> tuple[str | None, bytes]:
        """Its name and id, by which the topic's result is found in the response."""
        return self.name, self.topic_id


class MutationRequest(NamedTuple):
    """A decoded CreateTopics, CreatePartitions or DeleteTopics request: its topics, and where they are in the frame.

    Attributes:
        topics: in the request's order.
        topics_at, topics_end: the range of the array of topics in the frame, with its length.
        validate_only: whether the request is only to be validated, not carried out.
        repeated: the keys of topics that occur more than once.
    """

    topics: tuple[TopicMutation, ...]
    topics_at: int
    topics_end: int
    timeout_ms: int
    validate_only: bool
    repeated: frozenset[tuple[str | None, bytes]]


def read_request(frame: Buffer, body: int, api_key: int, version: int) -> MutationRequest:
    """Parse a complete CreateTopics, CreatePartitions or DeleteTopics request, whose fields begin at `body`.

    Raises:
        WireError: it is malformed, or its version is unknown.
    """
    if not 0 <= version <= MAX_VERSION[api_key]:
        raise UnknownVersionError(f"the layout of version {version} of API {api_key} is not known")
    compact = flexible(api_key, version)
    end = len(frame)
    read = _READERS[api_key]
    entries, pos = streamed_count(frame, body, end, compact)
    if entries > TOPICS_MAX:
        raise OversizedError(f"{entries} topics in one request, at most {TOPICS_MAX} are accepted")
    topics = []
    for _ in range(entries):
        topic = read(frame, pos, end, version, compact)
        topics.append(topic)
        pos = topic.end
    topics_end = pos
    timeout_ms = int32(frame, pos, end)
    pos += 4
    validate_only = False
    if api_key == CREATE_PARTITIONS or (api_key == CREATE_TOPICS and version >= _VALIDATE_ONLY_SINCE):
        after = skip(pos, 1, end)
        validate_only = bool(frame[pos])
        pos = after
    if compact:
        pos = skip_tags(frame, pos, end)
    named = Counter(topic.key for topic in topics)
    repeated = frozenset(key for key, times in named.items() if times > 1)
    return MutationRequest(tuple(topics), body, topics_end, timeout_ms, validate_only, repeated)


def keep_topics(
    frame: Buffer, request: MutationRequest, kept: Sequence[TopicMutation], api_key: int, version: int
) -> bytes:
    """Return a complete request frame with only the topics in `kept`; all other fields are unchanged."""
    runs: list[tuple[int, int]] = []  # of adjacent topics
    start = end = 0
    for topic in kept:
        if topic.start != end:
            runs.append((start, end))
            start = topic.start
        end = topic.end
    runs.append((start, end))
    array = count_bytes(len(kept), flexible(api_key, version)) + b"".join(
        bytes(frame[start:end]) for start, end in runs
    )
    body = bytes(frame[4 : request.topics_at]) + array + bytes(frame[request.topics_end :])
    return _INT32.pack(len(body)) + body


def _topic_name(frame: Buffer, pos: int, end: int, compact: bool) -> tuple[str, int]:
    name, after = string(frame, pos, end, compact)
    if name is None:
        raise MalformedFieldError(f"a topic at byte {pos} has no name")
    return name, after


def _read_created(frame: Buffer, start: int, end: int, _version: int, compact: bool) -> TopicMutation:
    name, pos = _topic_name(frame, start, end, compact)
    partitions = int32(frame, pos, end)
    assigned, pos = count(frame, skip(pos, 6, end), end, compact)  # after the replication factor
    for _ in range(assigned):
        replicas, pos = count(frame, skip(pos, 4, end), end, compact)
        pos = skip(pos, 4 * max(replicas, 0), end)
        pos = skip_tags(frame, pos, end) if compact else pos
    configs, pos = count(frame, pos, end, compact)
    for _ in range(configs):
        pos = skip_string(frame, skip_string(frame, pos, end, compact), end, compact)
        pos = skip_tags(frame, pos, end) if compact else pos
    pos = skip_tags(frame, pos, end) if compact else pos
    return TopicMutation(name, NO_TOPIC_ID, assigned if assigned > 0 else partitions, start, pos)


def _read_grown(frame: Buffer, start: int, end: int, _version: int, compact: bool) -> TopicMutation:
    name, pos = _topic_name(frame, start, end, compact)
    partitions = int32(frame, pos, end)
    assigned, pos = count(frame, pos + 4, end, compact)
    for _ in range(assigned):
        replicas, pos = count(frame, pos, end, compact)
        pos = skip(pos, 4 * max(replicas, 0), end)
        pos = skip_tags(frame, pos, end) if compact else pos
    pos = skip_tags(frame, pos, end) if compact else pos
    return TopicMutation(name, NO_TOPIC_ID, partitions, start, pos)


def _read_deleted(frame: Buffer, start: int, end: int, version: int, compact: bool) -> TopicMutation:
    if version < _IDS_SINCE:
        name, pos = _topic_name(frame, start, end, compact)
        return TopicMutation(name, NO_TOPIC_ID, 0, start, pos)
    maybe, id_at = string(frame, start, end, compact)
    tags_at = skip(id_at, 16, end)
    return TopicMutation(maybe, bytes(frame[id_at:tags_at]), 0, start, skip_tags(frame, tags_at, end))


_READERS: Final = {CREATE_TOPICS: _read_created, CREATE_PARTITIONS: _read_grown, DELETE_TOPICS: _read_deleted}


class TopicResult(NamedTuple):
    """The broker's result for one topic.

    Attributes:
        name: None if the response has none: the client may not see it.
        partitions: the number of created partitions (CreateTopics 5 and later); -1 if the response does not have it.
        start, end: the range of its bytes in the frame.
    """

    name: str | None
    topic_id: bytes
    error_code: int
    partitions: int
    start: int
    end: int


class MutationResponse(NamedTuple):
    """A decoded response; `throttle_at` is the position of its throttle time, -1 in versions without one."""

    throttle_at: int
    topics: tuple[TopicResult, ...]
    topics_at: int
    topics_end: int


def read_response(frame: Buffer, api_key: int, version: int) -> MutationResponse:
    """Parse a complete response to CreateTopics, CreatePartitions or DeleteTopics.

    Raises:
        WireError: it is malformed.
    """
    end = len(frame)
    compact = flexible(api_key, version)
    pos = response_body_start(frame, 0, end, api_key, version)
    throttle_at = -1
    if version >= _THROTTLE_SINCE[api_key]:
        throttle_at, pos = pos, skip(pos, 4, end)
    topics_at = pos
    entries, pos = count(frame, pos, end, compact)
    topics = []
    for _ in range(entries):
        topic = _read_topic(frame, pos, end, api_key, version)
        topics.append(topic)
        pos = topic.end
    if compact:
        skip_tags(frame, pos, end)
    return MutationResponse(throttle_at, tuple(topics), topics_at, pos)


def rejected_entry(topic: TopicMutation, api_key: int, version: int) -> bytes:
    """Return a topic's entry in a response with THROTTLING_QUOTA_EXCEEDED, as Kafka writes it."""
    topic_id = topic.topic_id if version >= _ID_SINCE.get(api_key, version + 1) else b""
    return (
        string_bytes(topic.name, flexible(api_key, version)) + topic_id + _rejected_fields(api_key, version)
    )


@lru_cache
def _rejected_fields(api_key: int, version: int) -> bytes:
    """Return the fields after name and id, which are the same for every rejected topic."""
    compact = flexible(api_key, version)
    parts = [_INT16.pack(THROTTLING_QUOTA_EXCEEDED)]
    if version >= _MESSAGE_SINCE[api_key]:
        parts.append(string_bytes(_MESSAGE, compact))
    if api_key == CREATE_TOPICS and version >= _CREATED_SINCE:
        parts += (_NOT_CREATED, count_bytes(0, compact))
    if compact:
        parts.append(b"\0")
    return b"".join(parts)


def local_response(
    topics: Iterable[TopicMutation], api_key: int, version: int, correlation_id: int, throttle_ms: int
) -> bytes:
    """Return the complete response to a request of which Sluice has rejected all topics."""
    compact = flexible(api_key, version)
    rest = _rejected_fields(api_key, version)
    if version >= _ID_SINCE.get(api_key, version + 1):
        entries = [string_bytes(topic.name, compact) + topic.topic_id + rest for topic in topics]
    else:
        entries = [string_bytes(topic.name, compact) + rest for topic in topics]
    head = _INT32.pack(correlation_id) + (b"\0" if compact else b"")
    if version >= _THROTTLE_SINCE[api_key]:
        head += _INT32.pack(throttle_ms)
    body = head + count_bytes(len(entries), compact) + b"".join(entries) + (b"\0" if compact else b"")
    return _INT32.pack(len(body)) + body


def match_results(response: MutationResponse, topics: Sequence[TopicMutation]) -> list[TopicResult | None]:
    """Return the broker's result for each of these topics of the request; None if the response has none.

    A topic that occurs twice in the request has one result, which belongs to the first of them.
    """
    by_name: defaultdict[str, deque[TopicResult]] = defaultdict(deque)
    by_id: defaultdict[bytes, deque[TopicResult]] = defaultdict(deque)
    for found in response.topics:
        if found.name is not None:
            by_name[found.name].append(found)
        by_id[found.topic_id].append(found)  # the response to a topic's name may have its id too
    owed = (by_id[topic.topic_id] if topic.name is None else by_name[topic.name] for topic in topics)
    return [waiting.popleft() if waiting else None for waiting in owed]


def read_and_merge(
    frame: bytes, api_key: int, version: int, topics: Sequence[TopicMutation], rejected: frozenset[int]
) -> tuple[int, list[TopicResult | None], bytes]:
    """Parse a broker's complete response, and add THROTTLING_QUOTA_EXCEEDED (89) for each topic that Sluice rejected.

    Args:
        rejected: the indices of the topics that were not forwarded.

    Returns:
        The offset of the throttle time, or -1; the result of each topic (`match_results`); the complete response.

    Raises:
        WireError: the response is malformed.
    """
    response = read_response(frame, api_key, version)
    became = match_results(response, topics)
    if not rejected:
        return response.throttle_at, became, frame
    entries = (
        rejected_entry(topic, api_key, version) if index in rejected else became[index]
        for index, topic in enumerate(topics)
    )
    merged = merged_response(frame, response, entries, compact=flexible(api_key, version))
    return response.throttle_at, became, merged


def merged_response(
    frame: Buffer, response: MutationResponse, entries: Iterable[TopicResult | bytes | None], *, compact: bool
) -> bytes:
    """Return a broker's response with these entries, in this order.

    Args:
        entries: the broker's own results, and bytes of further entries; None is skipped. Results of the broker that are
            not among them are appended, so that none is lost.
    """
    made: list[bytes] = []
    placed: set[int] = set()
    for entry in entries:
        if isinstance(entry, bytes):
            made.append(entry)
        elif entry is not None:
            placed.add(entry.start)
            made.append(bytes(frame[entry.start : entry.end]))
    made += (bytes(frame[found.start : found.end]) for found in response.topics if found.start not in placed)
    body = bytes(frame[4 : response.topics_at]) + count_bytes(len(made), compact)
    body += b"".join(made) + bytes(frame[response.topics_end :])
    return _INT32.pack(len(body)) + body


def _read_topic(frame: Buffer, start: int, end: int, api_key: int, version: int) -> TopicResult:
    compact = flexible(api_key, version)
    name, pos = string(frame, start, end, compact)
    topic_id = NO_TOPIC_ID
    if version >= _ID_SINCE.get(api_key, version + 1):
        after = skip(pos, 16, end)
        topic_id, pos = bytes(frame[pos:after]), after
    error_code = int16(frame, pos, end)
    pos += 2
    if version >= _MESSAGE_SINCE[api_key]:
        pos = skip_string(frame, pos, end, compact)
    partitions = -1
    if api_key == CREATE_TOPICS and version >= _CREATED_SINCE:
        partitions = int32(frame, pos, end)
        configs, pos = count(frame, skip(pos, 6, end), end, compact)  # after the replication factor
        for _ in range(configs):
            # Name, value; whether it is read-only, its source, whether it is sensitive.
            pos = skip(skip_string(frame, skip_string(frame, pos, end, True), end, True), 3, end)
            pos = skip_tags(frame, pos, end)
    if compact:
        pos = skip_tags(frame, pos, end)
    return TopicResult(name, topic_id, error_code, partitions, start, pos)
