"""Readers of single messages, by a number: what brokers, clients and recorded frames are read with beside the channel.

An input is the reader's number, the version, one byte that says whether the rest is stretched, and the message: with
its length and header where the reader wants a whole frame. A large message is read beside the loop, so that its time is
not bounded here; whether it is given there, `requests` and `answers` see.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kafka_client import Request, topics
from kafka_client import metadata as own
from kafka_client import quotas as own_quotas
from offline.replay import frames
from offline.replay import messages as replay_responses
from protocol import api, header, throttle
from protocol.errors import WireError
from protocol.messages import (
    addresses,
    api_versions,
    client_quotas,
    fetch,
    groups,
    metadata,
    produce,
    reassignments,
    sasl,
    telemetry,
    topic_mutations,
)
from proxy.system.threads import AT_ONCE_BYTES_MAX
from tests.fuzz.draw import Draw, stretching
from tests.fuzz.stopwatch import timed
from tests.support.frames import frame as framed
from tests.support.playbook import gateway_address
from tests.unit.protocol.kafka_frames import rewrite_produce

Reader = Callable[[bytes, int], object]

_MUTATIONS: Final = (api.CREATE_TOPICS, api.CREATE_PARTITIONS, api.DELETE_TOPICS)
_BODY: Final = 15  # of a flexible request without client id: behind its tags


def _mutation(frame: bytes, version: int) -> object:
    return topic_mutations.read_request(frame, _BODY, _MUTATIONS[version % 3], version // 3)


def _mutation_response(frame: bytes, version: int) -> object:
    key, version = _MUTATIONS[version % 3], version // 3
    if version > api.MAX_VERSION[key]:
        return None
    found = topic_mutations.read_response(frame, key, version)
    compact = api.flexible(key, version)
    return topic_mutations.merged_response(frame, found, reversed(found.topics), compact=compact)


def _throttle(frame: bytes, version: int) -> object:
    key = version % 95
    return throttle.patch(bytearray(frame), key, version // 95 + api.MAX_VERSION.get(key, 0), 7)


def _body_start(frame: bytes, version: int) -> object:
    found = header.body_start(frame, 0, len(frame), version % 95, version // 95)
    assert found is None or found <= len(frame), "a body begins within its frame"
    return header.client_id(frame, 0, len(frame)), found


def _sasl(frame: bytes, version: int) -> object:
    end = len(frame)
    if version % 3 == 0:
        return sasl.mechanism(frame, 4, end)
    if version % 3 == 1:
        return sasl.handshake_error(frame, 0, end)
    return sasl.verdict(frame, 0, end, version // 3 % 3)


def _asked_again(frame: bytes, version: int) -> object:
    return frames.resendable(frame, version % 95, version // 95, 7)


def _freed(frame: bytes, _version: int) -> object:
    found = frames.read_produce(frame)
    return None if found is None else [frames.without_producer(records) for records in found.records]


def _replayed(frame: bytes, version: int) -> object:
    return replay_responses.outcome(frame, version % 2, 9 + version % 9)


def _own(request: Request[Any]) -> Reader:
    """The reader of a response to one of Sluice's own requests, of whatever length the frame says that it has."""
    return lambda frame, _: request.read((len(frame) - 4).to_bytes(4, "big") + frame[4:])


def _addressed(rewrite: Callable[..., object], *more: object) -> Reader:
    return lambda frame, version: rewrite(frame, version, gateway_address, *more)


def _asked(read: Callable[..., object]) -> Reader:
    """The reader of a request, from its body to its end."""
    return lambda frame, version: read(frame, _BODY, len(frame), version)


# Only appended to: an input of the corpus names its reader by the place.
READERS: Final[tuple[tuple[str, Reader], ...]] = (
    ("api_versions.rewrite", api_versions.rewrite),
    ("describe_cluster.rewrite", _addressed(addresses.rewrite_describe_cluster)),
    ("find_coordinator.rewrite", _addressed(addresses.rewrite_find_coordinator)),
    ("metadata.rewrite_head", _addressed(metadata.rewrite_head)),
    ("produce.rewrite_response", _addressed(rewrite_produce, 5)),
    ("produce.acks", _asked(produce.acks)),
    ("fetch.read_request", _asked(fetch.read_request)),
    ("fetch.full_topics", lambda frame, v: fetch.full_topics(frame, _BODY, v)),
    ("groups.session_timeout_ms", _asked(groups.session_timeout_ms)),
    ("metadata_topics.read_request", lambda frame, v: metadata.read_request(frame, _BODY, v)),
    ("metadata_topics.read_topics", metadata.read_topics),
    ("partition_states.read_answer", _own(own.partitions([]))),
    ("partition_states.read_brokers", _own(own.registered_brokers())),
    ("replica_sizes.read_metadata", _own(own.all_topics())),
    ("replica_sizes.read_log_dirs", _own(own.replica_sizes())),
    ("describe_configs.read_answer", _own(own.describe_topics([], []))),
    ("elect_leaders.read_answer", _own(own.elect_preferred([], 1))),
    ("alter_reassignments.read_request", lambda frame, v: reassignments.read_alter_request(frame, _BODY, v)),
    ("alter_reassignments.read_response", reassignments.read_alter_response),
    ("reassignments.read_request", lambda frame, _: reassignments.read_list_request(frame, _BODY)),
    ("reassignments.read_response", lambda frame, _: reassignments.read_list_response(frame)),
    ("reassignments.read_batch", lambda frame, _: reassignments.read_batch(frame)),
    ("client_quotas.read_describe", _asked(client_quotas.read_describe)),
    ("client_quotas.AlterRequest", _asked(lambda *where: list(client_quotas.AlterRequest(*where)))),
    ("client_quotas_calls.DescribeAnswer", lambda frame, v: list(own_quotas.QuotaEntities(v, frame))),
    ("client_quotas_calls.read_alter_answer", _own(own_quotas.alter([], validate_only=True))),
    ("topic_mutations.read_request", _mutation),
    ("topic_mutation_responses.read_response", _mutation_response),
    ("throttle.patch", _throttle),
    ("header.body_start", _body_start),
    ("sasl", _sasl),
    ("kept.asked_again", _asked_again),
    ("kept.freed", _freed),
    ("replay_responses.outcome", _replayed),
    ("replay_responses.read_metadata", _own(own.partitions([], 9))),
    ("replay_responses.read_created", _own(topics.create_placed("t", []))),
    ("telemetry.throttle_times", lambda frame, _: telemetry.throttle_times(frame, _BODY - 1, len(frame))),
)


def read(data: bytes) -> None:
    """Read one message."""
    draw = Draw(data)
    name, reader = draw.pick(READERS)
    version, flags = draw.byte(), draw.byte()
    how = stretching(draw, flags & 1)
    message = how(draw.rest())
    if not flags & 2:
        message = framed(message)
    with suppress(WireError):
        if len(message) <= AT_ONCE_BYTES_MAX:
            timed(name, reader, message, version)
        else:
            reader(message, version)
