"""The addresses of brokers in responses, replaced by those for clients, or removed.

- NodeEndpoints at the end of Produce, Fetch and share responses (KIP-951, KIP-932): node id, host, port, rack and a tag
  section. In Produce and Fetch responses the array is tag 0 of the body's tag section; in share responses it precedes
  that section.
- FindCoordinator (KIP-699 batches). A coordinator without an address for clients is reported as not available yet:
  clients wait and retry.
- DescribeCluster (KIP-700, KIP-919, KIP-1073). Brokers without an address for clients are removed. Controllers
  (endpoint type 2) are not behind Sluice and are all removed; a broker refuses such a request anyway.
- DescribeQuorum 0-2 (KIP-595, KIP-853). No controller is behind Sluice, so there is no address to replace them: the
  nodes stay, their listeners are removed. Responses before version 2 contain no address.
- DescribeConfigs 0-4 (KIP-133, KIP-226, KIP-569). Configs that hold addresses of brokers and controllers lose their
  values, also those of synonyms, and are marked as sensitive, as Kafka marks hidden values. Configs of topics and
  groups hold none. Version notes: synonyms since 1, types and documentation since 3, flexible since 4.

All other fields are not changed. Metadata is in `protocol.messages.metadata`.

Non-obvious:

- NodeEndpoints at the end of a Fetch or share response are rewritten to the same length, since the frame's length was
  sent long before. If the new endpoints are shorter, an unknown tagged field, which every client must ignore (KIP-482),
  fills the rest; if they are longer, racks are left out, then endpoints: clients then request metadata, as before
  KIP-951.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from protocol.api import DESCRIBE_CLUSTER, DESCRIBE_CONFIGS, DESCRIBE_QUORUM, FIND_COORDINATOR, flexible
from protocol.errors import MalformedFieldError
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
    string,
    string_bytes,
    string_span,
    uvarint,
    uvarint_bytes,
)

# (node id, host, port) -> the address for clients; None: remove this broker.
AddressMap: TypeAlias = Callable[[int, str, int], tuple[str, int] | None]
# The fields of a tag section, in order.
Tags: TypeAlias = list[tuple[int, bytes]]

_ENDPOINTS_TAG: Final = 0
# The highest tag of one byte: Kafka assigns tags from 0 upwards, one or two per message.
_FILL_TAG: Final = 127
# No Kafka message has more than four; the bound keeps the count of tags one byte long.
_TAGS_MAX: Final = 64
# The most endpoints that are rewritten in a forwarded frame: each blocks the loop for about 5 us. If there are more,
# which needs as many brokers, all are removed.
FITTED_MAX: Final = 500
_INT32 = Struct(">i")
_NULL_RACK: Final = b"\x00"

COORDINATOR_NOT_AVAILABLE: Final = 15

_INT16 = Struct(">h")

_BATCHED_SINCE: Final = 4

_ENDPOINT_TYPE_SINCE: Final = 1
_FENCED_SINCE: Final = 2
_BROKERS: Final = 1

ENDPOINTS_SINCE: Final = 2
_NO_LISTENERS: Final = count_bytes(0, True)
_REPLICA_BYTES: Final = 4 + 16 + 8 + 8 + 8  # id, directory's id, log end offset, and two times

HIDDEN: Final = frozenset(
    (
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        # Before KRaft, and before listeners.
        "zookeeper.connect",
        "host.name",
        "port",
        "advertised.host.name",
        "advertised.port",
    )
)
_BROKER: Final = 4  # a resource type
_SYNONYMS_SINCE: Final = 1
_DOCUMENTED_SINCE: Final = 3
_FLEXIBLE_SINCE: Final = 4


class Endpoint(NamedTuple):
    """A broker's id and address in a response; its rack and tags stay encoded, as received."""

    node_id: int
    host: str
    port: int
    rack: bytes
    tags: bytes


def read_endpoints(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> tuple[list[Endpoint], int]:
    """Return the brokers in the array at `pos`, with the addresses that clients use, and the position after the array.

    Brokers without such an address are left out.
    """
    endpoints: list[Endpoint] = []
    entries, pos = uvarint(buf, pos, end)
    for _ in range(entries - 1):
        node_id = int32(buf, pos, end)
        host, pos = string(buf, pos + 4, end, True)
        port = int32(buf, pos, end)
        rack_pos = pos + 4
        tags_pos = skip_string(buf, rack_pos, end, True)
        pos = skip_tags(buf, tags_pos, end)
        address = address_map(node_id, host or "", port)
        if address is not None:
            rack, tags = bytes(buf[rack_pos:tags_pos]), bytes(buf[tags_pos:pos])
            endpoints.append(Endpoint(node_id, address[0], address[1], rack, tags))
    return endpoints, pos


def _skip_endpoints(buf: Buffer, pos: int, end: int) -> int:
    """Return the position after the array at `pos`."""
    entries, pos = uvarint(buf, pos, end)
    for _ in range(entries - 1):
        pos = skip(skip_string(buf, skip(pos, 4, end), end, True), 4, end)
        pos = skip_tags(buf, skip_string(buf, pos, end, True), end)
    return pos


def _fit(buf: Buffer, pos: int, end: int) -> bool:
    """Whether the array at `pos` has at most FITTED_MAX entries, so that it is rewritten and not emptied."""
    return uvarint(buf, pos, end)[0] - 1 <= FITTED_MAX


def endpoints_bytes(endpoints: list[Endpoint], racks: bool = True) -> bytes:
    """Encode brokers as an array; if `racks` is False, their racks are null."""
    out = [uvarint_bytes(len(endpoints) + 1)]
    for node_id, host, port, rack, tags in endpoints:
        name = host.encode()
        out += (
            _INT32.pack(node_id),
            uvarint_bytes(len(name) + 1),
            name,
            _INT32.pack(port),
            rack if racks else _NULL_RACK,
            tags,
        )
    return b"".join(out)


def rewrite_tags(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> bytes | None:
    """Return buf[pos:end], which begins with a response's tag section, with the brokers' addresses for clients.

    None if the tags contain no node endpoints (KIP-951), so that nothing changes.
    """
    tags, rest = _read_tags(buf, pos, end)
    for index, (tag, raw) in enumerate(tags):
        if tag == _ENDPOINTS_TAG:
            endpoints, _ = read_endpoints(raw, 0, len(raw), address_map)
            # An empty array is the default, and defaults are not written.
            tags[index : index + 1] = [(tag, endpoints_bytes(endpoints))] if endpoints else []
            return _tags_bytes(tags) + bytes(buf[rest:end])
    return None


def fit_tags(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> bytes | None:
    """Do the same as `rewrite_tags` with a result of exactly `end - pos` bytes: racks or endpoints may be left out.

    For Fetch, whose length prefix has already been forwarded.
    """
    tags, rest = _read_tags(buf, pos, end)
    for index, (tag, raw) in enumerate(tags):
        if tag == _ENDPOINTS_TAG:
            fits = _fit(raw, 0, len(raw))
            endpoints = read_endpoints(raw, 0, len(raw), address_map)[0] if fits else []
            others = tags[:index] + tags[index + 1 :]
            for racks in (True, False) if fits else ():
                array = (tag, endpoints_bytes(endpoints, racks))
                fitted = _fill([*tags[:index], array, *tags[index + 1 :]], rest - pos)
                if fitted is not None:
                    return fitted + bytes(buf[rest:end])
            fitted = _fill(others, rest - pos)
            assert fitted is not None, "fewer tags cannot need more bytes"
            return fitted + bytes(buf[rest:end])
    return None


def fit_array(buf: Buffer, pos: int, end: int, address_map: AddressMap) -> bytes | None:
    """Return buf[pos:end], which begins with an array of brokers, with their addresses for clients, in the same length.

    For the share APIs, whose length prefix has already been forwarded. None if the array is empty.
    """
    if pos < end and buf[pos] == 1:
        return None
    if _fit(buf, pos, end):
        endpoints, tags_pos = read_endpoints(buf, pos, end, address_map)
    else:
        endpoints, tags_pos = [], _skip_endpoints(buf, pos, end)
    tags, rest = _read_tags(buf, tags_pos, end)
    for array in (endpoints_bytes(endpoints), endpoints_bytes(endpoints, False), endpoints_bytes([])):
        fitted = _fill(tags, rest - pos - len(array))
        if fitted is not None:
            return array + fitted + bytes(buf[rest:end])
    raise AssertionError("an empty array cannot need more bytes")


def _read_tags(buf: Buffer, pos: int, end: int) -> tuple[Tags, int]:
    fields, pos = uvarint(buf, pos, end)
    if fields > _TAGS_MAX:
        raise MalformedFieldError(f"{fields} tagged fields before byte {pos}")
    tags: Tags = []
    for _ in range(fields):
        tag, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        after = skip(pos, size, end)
        tags.append((tag, bytes(buf[pos:after])))
        pos = after
    return tags, pos


def _tags_bytes(tags: Tags) -> bytes:
    out = [uvarint_bytes(len(tags))]
    for tag, raw in tags:
        out += (uvarint_bytes(tag), uvarint_bytes(len(raw)), raw)
    return b"".join(out)


def _fill(tags: Tags, size: int) -> bytes | None:
    """Return a tag section of exactly `size` bytes, or None if these tags need more."""
    section = _tags_bytes(tags)
    gap = size - len(section)
    if gap < 0:
        return None
    if gap == 0:
        return section
    if gap == 1:
        # Too short for another field: the count of tags is encoded in two bytes, which every varint reader
        # accepts.
        return bytes((section[0] | 0x80, 0)) + section[1:]
    # A tag of one byte, a length in as many bytes as are needed for the exact size, and zeros.
    width = 1
    while gap - 1 - width >= 1 << 7 * width:
        width += 1
    filler = gap - 1 - width
    length = bytes(filler >> 7 * i & 0x7F | (0x80 if i < width - 1 else 0) for i in range(width))
    return bytes((section[0] + 1,)) + section[1:] + bytes((_FILL_TAG,)) + length + bytes(filler)


def rewrite_find_coordinator(frame: bytes, version: int, address_map: AddressMap) -> bytes:
    """Return a complete FindCoordinator response, with the coordinators' addresses replaced by those for clients."""
    end = len(frame)
    compact = flexible(FIND_COORDINATOR, version)
    pos = response_body_start(frame, 0, end, FIND_COORDINATOR, version)
    if version >= 1:
        pos = skip(pos, 4, end)
    if version >= _BATCHED_SINCE:
        coordinators, after = count(frame, pos, end, compact)
        out = [frame[4:after]]
        pos = after
        for _ in range(coordinators):
            entry, pos = _coordinator(frame, pos, end, address_map)
            out.append(entry)
    else:
        entry, after = _single(frame, pos, end, version, address_map)
        out = [frame[4:pos], entry]
        pos = after
    out.append(frame[pos:])
    body = b"".join(out)
    return _INT32.pack(len(body)) + body


def _single(frame: bytes, pos: int, end: int, version: int, address_map: AddressMap) -> tuple[bytes, int]:
    """Return error, message and node of a response of versions 0 to 3, rewritten, and the position after them."""
    compact = flexible(FIND_COORDINATOR, version)
    error = int16(frame, pos, end)
    message_pos = node_pos = pos + 2
    if version >= 1:
        node_pos = skip_string(frame, message_pos, end, compact)
    node_id = int32(frame, node_pos, end)
    host, after = string(frame, node_pos + 4, end, compact)
    port = int32(frame, after, end)
    after += 4
    error, node = _mapped(error, node_id, host, port, compact, address_map)
    return _INT16.pack(error) + frame[message_pos:node_pos] + node, after


def _coordinator(frame: bytes, pos: int, end: int, address_map: AddressMap) -> tuple[bytes, int]:
    """Return one coordinator's entry, rewritten (version 4 and later), and the position after it."""
    node_pos = skip_string(frame, pos, end, True)
    node_id = int32(frame, node_pos, end)
    host, port_pos = string(frame, node_pos + 4, end, True)
    port = int32(frame, port_pos, end)
    error = int16(frame, port_pos + 4, end)
    message_pos = port_pos + 6
    after = skip_tags(frame, skip_string(frame, message_pos, end, True), end)
    error, node = _mapped(error, node_id, host, port, True, address_map)
    return frame[pos:node_pos] + node + _INT16.pack(error) + frame[message_pos:after], after


def _mapped(
    error: int, node_id: int, host: str | None, port: int, compact: bool, address_map: AddressMap
) -> tuple[int, bytes]:
    """Return the error code, and node id, host and port in wire format, for clients.
    A broker without an address for clients gives COORDINATOR_NOT_AVAILABLE (unless there is an error) and no node.
    """
    address: tuple[str, int] | None = (host or "", port)
    # A response with an error has no node: node -1, no host, port -1.
    if not error or node_id >= 0:
        address = address_map(node_id, host or "", port)
        if address is None:
            error, node_id, address = error or COORDINATOR_NOT_AVAILABLE, -1, ("", -1)
    assert address is not None
    return error, _INT32.pack(node_id) + string_bytes(address[0], compact) + _INT32.pack(address[1])


def rewrite_describe_cluster(frame: bytes, version: int, address_map: AddressMap) -> bytes:
    """Return a complete DescribeCluster response, with the brokers' addresses replaced by those for clients."""
    end = len(frame)
    pos = response_body_start(frame, 0, end, DESCRIBE_CLUSTER, version)
    # Throttle time, error code, error message.
    pos = skip_string(frame, skip(pos, 6, end), end, True)
    endpoint_type = _BROKERS
    if version >= _ENDPOINT_TYPE_SINCE:
        after = skip(pos, 1, end)
        endpoint_type, pos = frame[pos], after
    # Cluster id, controller id.
    brokers_pos = skip(skip_string(frame, pos, end, True), 4, end)
    brokers, pos = count(frame, brokers_pos, end, True)
    entries: list[bytes] = []
    for _ in range(brokers):
        node_id = int32(frame, pos, end)
        host, pos = string(frame, pos + 4, end, True)
        port = int32(frame, pos, end)
        rest = pos + 4
        pos = skip_string(frame, rest, end, True)
        pos = skip_tags(frame, pos + 1 if version >= _FENCED_SINCE else pos, end)
        address = address_map(node_id, host or "", port) if endpoint_type == _BROKERS else None
        if address is not None:
            head = _INT32.pack(node_id) + string_bytes(address[0], True) + _INT32.pack(address[1])
            entries.append(head + frame[rest:pos])
    body = frame[4:brokers_pos] + count_bytes(len(entries), True) + b"".join(entries) + frame[pos:]
    return _INT32.pack(len(body)) + body


def quorum_without_addresses(frame: bytes, version: int) -> bytes:
    """Return a complete DescribeQuorum response with the listeners of all nodes removed (version 2 and later).

    Raises:
        WireError: it is not such a response.
    """
    assert version >= ENDPOINTS_SINCE, "older ones pass as they are"
    end = len(frame)
    pos = response_body_start(frame, 0, end, DESCRIBE_QUORUM, version)
    pos = skip_string(frame, skip(pos, 2, end), end, True)
    topics, pos = count(frame, pos, end, True)
    for _ in range(topics):
        partitions, pos = count(frame, skip_string(frame, pos, end, True), end, True)
        for _ in range(partitions):
            pos = _skip_partition(frame, pos, end)
        pos = skip_tags(frame, pos, end)
    nodes, after = count(frame, pos, end, True)
    parts = [frame[4:after]]
    pos = after
    for _ in range(nodes):
        listeners_at = skip(pos, 4, end)
        parts += (frame[pos:listeners_at], _NO_LISTENERS)
        listeners, pos = count(frame, listeners_at, end, True)
        for _ in range(listeners):
            pos = skip_string(frame, skip_string(frame, pos, end, True), end, True)
            pos = skip_tags(frame, skip(pos, 2, end), end)
        tags_at, pos = pos, skip_tags(frame, pos, end)
        parts.append(frame[tags_at:pos])
    body = b"".join((*parts, frame[pos:]))
    return len(body).to_bytes(4, "big") + body


def _skip_partition(frame: bytes, pos: int, end: int) -> int:
    # Index, error code, error message; the leader's id and epoch, the high watermark; voters, observers.
    pos = skip(skip_string(frame, skip(pos, 6, end), end, True), 16, end)
    for _ in range(2):
        replicas, pos = count(frame, pos, end, True)
        for _ in range(replicas):
            pos = skip_tags(frame, skip(pos, _REPLICA_BYTES, end), end)
    return skip_tags(frame, pos, end)


def names_broker(frame: Buffer, body: int, version: int) -> bool:
    """Whether a complete DescribeConfigs request, whose fields begin at `body`, requests a broker's configs.

    Raises:
        WireError: it is not such a request.
    """
    end = len(frame)
    compact = version >= _FLEXIBLE_SINCE
    resources, pos = count(frame, body, end, compact)
    for _ in range(resources):
        start, stop = string_span(frame, skip(pos, 1, end), end, compact)
        if (
            frame[pos] == _BROKER and stop > start
        ):  # without a name: the default of all brokers, without addresses
            return True
        keys, pos = count(frame, max(start, stop), end, compact)
        for _ in range(keys):
            pos = skip_string(frame, pos, end, compact)
        pos = skip_tags(frame, pos, end) if compact else pos
    return False


def configs_without_addresses(frame: bytes, version: int) -> bytes:
    """Return a complete DescribeConfigs response with the values removed of all configs that contain addresses.

    Raises:
        WireError: it is not such a response.
    """
    end = len(frame)
    compact = version >= _FLEXIBLE_SINCE
    parts: list[bytes] = []
    passed = 4
    resources, pos = count(
        frame, skip(response_body_start(frame, 0, end, DESCRIBE_CONFIGS, version), 4, end), end, compact
    )
    for _ in range(resources):
        # Error code, error message; type, name.
        pos = skip_string(frame, skip(pos, 2, end), end, compact)
        pos = skip_string(frame, skip(pos, 1, end), end, compact)
        entries, pos = count(frame, pos, end, compact)
        for _ in range(entries):
            start = pos
            name, hidden, pos = _entry(frame, pos, end, version)
            if name in HIDDEN:
                parts += (frame[passed:start], hidden)
                passed = pos
        pos = skip_tags(frame, pos, end) if compact else pos
    body = b"".join((*parts, frame[passed:]))
    return len(body).to_bytes(4, "big") + body


def _entry(frame: bytes, pos: int, end: int, version: int) -> tuple[str | None, bytes, int]:
    """Return a config's name, its bytes (without values if it is one of HIDDEN), and the position after it."""
    compact = version >= _FLEXIBLE_SINCE
    null = count_bytes(-1, True) if compact else b"\xff\xff"
    start = pos
    name, value_at = string(frame, pos, end, compact)
    hides = name in HIDDEN
    flags_at = skip_string(frame, value_at, end, compact)
    # Whether it is read-only, its source, whether it is sensitive.
    pos = skip(flags_at, 3, end)
    parts = [frame[start:value_at], null, frame[flags_at : flags_at + 2], b"\1"] if hides else []
    if version >= _SYNONYMS_SINCE:
        synonyms_at = pos
        synonyms, pos = count(frame, pos, end, compact)
        parts.append(frame[synonyms_at:pos])
        for _ in range(synonyms):
            synonym_at = pos
            value_at = skip_string(frame, pos, end, compact)
            source_at = skip_string(frame, value_at, end, compact)
            pos = skip(source_at, 1, end)
            pos = skip_tags(frame, pos, end) if compact else pos
            if hides:
                parts += (frame[synonym_at:value_at], null, frame[source_at:pos])
    rest = pos
    if version >= _DOCUMENTED_SINCE:
        pos = skip_string(frame, skip(pos, 1, end), end, compact)
    pos = skip_tags(frame, pos, end) if compact else pos
    parts.append(frame[rest:pos])
    return name, b"".join(parts) if hides else b"", pos
