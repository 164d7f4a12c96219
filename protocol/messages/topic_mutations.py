"""CreateTopics 0-7, CreatePartitions 0-3 and DeleteTopics 0-6: what they ask for, topic by topic (KIP-599).

A request is walked to each topic's name or id, the number of partitions it names, and where its bytes begin
and end; so topics can be taken out of it while every other byte stays as the client wrote it. The responses are
in `topic_mutation_responses`. Nothing here judges: what a topic counts is up to the caller.

Version notes: flexible since CreateTopics 5, CreatePartitions 2, DeleteTopics 4; validate_only since
CreateTopics 1, always in CreatePartitions, never in DeleteTopics; num_partitions -1 (KIP-464) since
CreateTopics 4; DeleteTopics names topics by id since 6 (KIP-516).
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
    "read_request",
    "without_topics",
]

NO_TOPIC_ID: Final = bytes(16)
# num_partitions where the broker's default is wanted.
DEFAULT_PARTITIONS: Final = -1
# From these versions on a client knows error 89 (KIP-599).
STRICT_SINCE: Final = {CREATE_TOPICS: 6, CREATE_PARTITIONS: 3, DELETE_TOPICS: 5}

# Topics of one request. A KRaft controller refuses what would make more than 10,000 records (MAX_RECORDS_PER_USER_OP).
TOPICS_MAX: Final = 10_000

_IDS_SINCE: Final = 6
_VALIDATE_ONLY_SINCE: Final = 1
_INT32: Final = Struct(">i")


class TopicMutation(NamedTuple):
    """One topic of a request.

    Attributes:
        name: None where it is named by its id.
        topic_id: sixteen bytes; zeros where it is named by its name.
        partitions: to be created: as many as are assigned by hand, else what was asked for, which may be -1; the
            new total of CreatePartitions; 0 for DeleteTopics, which does not tell.
        start, end: where its bytes lie in the frame.
    """

    name: str | None
    topic_id: bytes
    partitions: int
    start: int
    end: int

    @property
    def key(self) -> tuple[str | None, bytes]:
        """What a response's entry is matched by."""
        return self.name, self.topic_id


class MutationRequest(NamedTuple):
    """What a request asks for.

    Attributes:
        topics: in the request's order.
        topics_at, topics_end: where the array lies in the frame, its count included.
        validate_only: nothing is to be done, only judged.
        repeated: the keys of topics that stand there more than once.
    """

    topics: tuple[TopicMutation, ...]
    topics_at: int
    topics_end: int
    timeout_ms: int
    validate_only: bool
    repeated: frozenset[tuple[str | None, bytes]]


def read_request(frame: Buffer, body: int, api_key: int, version: int) -> MutationRequest:
    """Read a whole request whose fields begin at `body`.

    Raises:
        WireError: it is none, or of a version that is not known here.
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


def without_topics(
    frame: Buffer, request: MutationRequest, kept: Sequence[TopicMutation], api_key: int, version: int
) -> bytes:
    """The whole frame with these topics alone; all other bytes are the client's."""
    runs: list[tuple[int, int]] = []  # of neighbours
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


def _created(frame: Buffer, start: int, end: int, _version: int, compact: bool) -> TopicMutation:
    name, pos = _topic_name(frame, start, end, compact)
    partitions = int32(frame, pos, end)
    assigned, pos = count(frame, skip(pos, 6, end), end, compact)  # behind it the replication factor
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


def _grown(frame: Buffer, start: int, end: int, _version: int, compact: bool) -> TopicMutation:
    name, pos = _topic_name(frame, start, end, compact)
    partitions = int32(frame, pos, end)
    assigned, pos = count(frame, pos + 4, end, compact)
    for _ in range(assigned):
        replicas, pos = count(frame, pos, end, compact)
        pos = skip(pos, 4 * max(replicas, 0), end)
        pos = skip_tags(frame, pos, end) if compact else pos
    pos = skip_tags(frame, pos, end) if compact else pos
    return TopicMutation(name, NO_TOPIC_ID, partitions, start, pos)


def _deleted(frame: Buffer, start: int, end: int, version: int, compact: bool) -> TopicMutation:
    if version < _IDS_SINCE:
        name, pos = _topic_name(frame, start, end, compact)
        return TopicMutation(name, NO_TOPIC_ID, 0, start, pos)
    maybe, id_at = string(frame, start, end, compact)
    tags_at = skip(id_at, 16, end)
    return TopicMutation(maybe, bytes(frame[id_at:tags_at]), 0, start, skip_tags(frame, tags_at, end))


_READERS: Final = {CREATE_TOPICS: _created, CREATE_PARTITIONS: _grown, DELETE_TOPICS: _deleted}
