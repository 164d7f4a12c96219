"""The requests of CreateTopics 0-7, CreatePartitions 0-3 and DeleteTopics 0-6, topic by topic (KIP-599).

Of each topic the name or id, the number of partitions, and the position of its bytes are read. So topics can be removed
from a request while all other bytes stay unchanged. The responses are in `topic_mutation_responses`. The caller decides
what a topic costs.

Version notes: flexible since CreateTopics 5, CreatePartitions 2, DeleteTopics 4; validate_only since CreateTopics 1,
always in CreatePartitions, never in DeleteTopics; num_partitions -1 (KIP-464) since CreateTopics 4; DeleteTopics has
topic ids since 6 (KIP-516).
"""

from collections import Counter
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, MAX_VERSION, flexible
from protocol.errors import MalformedFieldError, OversizedError, UnknownVersionError
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int32,
    skip,
    skip_string,
    skip_tags,
    streamed_count,
    string,
)

__all__ = [
    "DEFAULT_PARTITIONS",
    "NO_TOPIC_ID",
    "STRICT_SINCE",
    "TOPICS_MAX",
    "MutationRequest",
    "TopicMutation",
    "keep_topics",
    "read_request",
]

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


class TopicMutation(NamedTuple):
    """One topic of a request.

    Attributes:
        name: None if the request has the topic's id.
        topic_id: 16 bytes; zeros if the request has the topic's name.
        partitions: CreateTopics: the number of manual assignments, otherwise num_partitions, which may be -1.
            CreatePartitions: the new total. DeleteTopics: 0.
        start, end: the range of its bytes in the frame.
    """

    name: str | None
    topic_id: bytes
    partitions: int
    start: int
    end: int

    @property
    def key(self) -> tuple[str | None, bytes]:
        """Name and id, by which a response's entry is matched."""
        return self.name, self.topic_id


class MutationRequest(NamedTuple):
    """A parsed request.

    Attributes:
        topics: in the request's order.
        topics_at, topics_end: the range of the array in the frame, with its count.
        validate_only: whether the request is only validated.
        repeated: the keys of topics that occur more than once.
    """

    topics: tuple[TopicMutation, ...]
    topics_at: int
    topics_end: int
    timeout_ms: int
    validate_only: bool
    repeated: frozenset[tuple[str | None, bytes]]


def read_request(frame: Buffer, body: int, api_key: int, version: int) -> MutationRequest:
    """Parse a complete request; its fields begin at `body`.

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
    """Return the complete frame with only the topics in `kept`; all other bytes are unchanged."""
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
