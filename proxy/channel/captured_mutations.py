"""The number of partition mutations that a request asks for, as far as known without asking a broker (KIP-599)."""

from protocol.api import CREATE_PARTITIONS, DELETE_TOPICS, flexible
from protocol.capture import NONE
from protocol.errors import WireError
from protocol.header import RequestHead
from protocol.messages import topic_mutations
from proxy.channel.capture_rows import INT32_MAX
from proxy.channel.direction import skip_header_tags
from proxy.channel.in_flight import Buffer
from proxy.channel.parsing import AT_ONCE_BYTES_MAX
from quotas.engine import Engine


def requested_mutations(
    engine: Engine, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Return the number of partition mutations; NONE if the request is incomplete, or too large to be parsed here."""
    length, key, version, _, _ = head
    frame_end = pos + 4 + length
    fields_at = skip_header_tags(buf, body, min(end, frame_end), flexible=flexible(key, version))
    if end < frame_end or fields_at is None or length + 4 > AT_ONCE_BYTES_MAX:
        return NONE
    try:
        asked = topic_mutations.read_request(bytes(buf[pos:frame_end]), fields_at - pos, key, version)
    except WireError:  # the broker will report the error
        return NONE
    quotas = engine.mutations
    total = 0
    for topic in asked.topics:
        size = quotas.sizes.get(topic.topic_id if topic.name is None else topic.name, now_ms) or 0
        cost = topic.partitions
        if key == DELETE_TOPICS:
            cost = size or 1
        elif key == CREATE_PARTITIONS:
            cost -= size or max(cost - 1, 0)
        elif cost < 0:
            cost = quotas.default_partitions
        total += max(cost, 0)
    return min(total, INT32_MAX)
