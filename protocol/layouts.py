"""The layouts of requests that name topics, groups or transactional ids, and of their responses.

For one use: to find certain names in a message, with the error codes that belong to them, and to make the response that
refuses a whole request (`proxy.channel.guard`). Nothing is decoded that is not looked for. The layouts are those of
Kafka's own message definitions, written shortly; tests/unit/protocol/test_layouts.py makes this text from the
definitions in Kafka's jar and compares them.

    b h i l u   a number of 1, 2, 4, 8 bytes, or a topic's id of 16
    s B         a string; bytes or records. `s?` is null where there is nothing to say
    [x]         an array. {x y} a structure, ?{x y} one that may be null
    @2+ @0-5    the versions that have the field; without it, all
    t: g: x:    the name of a topic, of a group, a transactional id
    k: r:       the type and name of a resource, as in AlterConfigs
    e: p: c:    an error code, the index of a partition, the flag that lets a topic be created

Tagged fields are passed over: none of them holds a name.
"""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from typing import Final, NamedTuple

from protocol.api import ADD_PARTITIONS_TO_TXN, MAX_VERSION, OFFSET_COMMIT, TXN_OFFSET_COMMIT, flexible
from protocol.errors import MalformedFieldError, OversizedError, UnknownVersionError
from protocol.header import response_body_start
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int32,
    skip,
    skip_bytes,
    skip_string,
    skip_tags,
    string_span,
)

TOPIC: Final = "t"
GROUP: Final = "g"
TRANSACTIONAL_ID: Final = "x"

NO_FLAG: Final = -1
NOT_NAMED: Final = -2

# The most places of a message that are returned: they are patched in one turn of the loop. No client
# needs to name one topic a thousand times, or ten thousand of its partitions.
NAMED_MAX: Final = 1000
ERRORS_MAX: Final = 10_000

_RESOURCE: Final = "r"
_RESOURCE_TYPE: Final = "k"
_ERROR: Final = "e"
_PARTITION: Final = "p"
_CREATION: Final = "c"
_RESOURCES: Final = {2: TOPIC, 32: GROUP}  # Kafka's ConfigResource.Type
_SIZES: Final = {"b": 1, "h": 2, "i": 4, "l": 8, "u": 16}
_ARRAY: Final = "["
_STRUCTURE: Final = "{"
_LATEST: Final = 32767

_INT32: Final = Struct(">i")
_PARTITION_ERROR: Final = Struct(">ih")

_LAYOUTS: Final = """
0 Produce 0
    > x:s?@3+ h i [{t:s@0-12 u@13+ [{i B}]}]
    < [{t:s@0-12 u@13+ [{i e:h l l@2+ l@5+ [{i@8+ s?@8+}]@8+ s?@8+}]}] i@1+
3 Metadata 0
    > [{u@10+ t:s}] c:b@4+ b@8-10 b@8+
    < i@3+ [{i s i s?@1+}] s?@2+ i@1+ [{e:h t:s u@10+ b@1+ [{e:h p:i i i@7+ [i] [i] [i]@5+}] i@8+}]
      i@8-10 e:h@13+
8 OffsetCommit 2
    > g:s i@1+ s@1+ s?@7+ l@2-4 [{t:s@0-9 u@10+ [{p:i l i@6+ s?}]}]
    < i@3+ [{t:s@0-9 u@10+ [{p:i e:h}]}]
11 JoinGroup 0
    > g:s i i@1+ s s?@5+ s [{s B}] s?@8+
    < i@2+ e:h i s?@7+ s s b@9+ s [{s s?@5+ B}]
12 Heartbeat 0
    > g:s i s s?@3+
    < i@1+ e:h
13 LeaveGroup 0
    > g:s s@0-2 [{s@3+ s?@3+ s?@5+}]@3+
    < i@1+ e:h [{s@3+ s?@3+ e:h@3+}]@3+
14 SyncGroup 0
    > g:s i s s?@3+ s?@5+ s?@5+ [{s B}]
    < i@1+ e:h s?@5+ s?@5+ B
15 DescribeGroups 0
    > [g:s] b@3+
    < i@1+ [{e:h s?@6+ g:s s s s [{s s?@4+ s s B B}] i@3+}]
19 CreateTopics 2
    > [{t:s i h [{p:i [i]}] [{s s?}]}] i b@1+
    < i@2+ [{t:s u@7+ e:h s@1+ i@5+ h@5+ [{s@5+ s?@5+ b@5+ b@5+ b@5+}]@5+}]
20 DeleteTopics 1
    > [{t:s?@6+ u@6+}]@6+ [t:s]@0-5 i
    < i@1+ [{t:s u@6+ e:h s?@5+}]
21 DeleteRecords 0
    > [{t:s [{p:i l}]}] i
    < i [{t:s [{p:i l e:h}]}]
22 InitProducerId 0
    > x:s? i l@3+ h@3+ b@6+ b@6+
    < i e:h l h l@6+ h@6+
24 AddPartitionsToTxn 0
    > [{x:s@4+ l@4+ h@4+ b@4+ [{t:s [p:i]}]@4+}]@4+ x:s@0-3 l@0-3 h@0-3 [{t:s [p:i]}]@0-3
    < i e:h@4+ [{x:s@4+ [{t:s [{p:i e:h}]}]@4+}]@4+ [{t:s [{p:i e:h}]}]@0-3
25 AddOffsetsToTxn 0
    > x:s l h g:s
    < i e:h
26 EndTxn 0
    > x:s l h b
    < i e:h l@5+ h@5+
27 WriteTxnMarkers 1
    > [{l h b [{t:s [p:i]}] i b@2+}]
    < [{l [{t:s [{p:i e:h}]}]}]
28 TxnOffsetCommit 0
    > x:s g:s l h i@3+ s@3+ s?@3+ [{t:s@0-5 u@6+ [{p:i l i@2+ s?}]}]
    < i [{t:s@0-5 u@6+ [{p:i e:h}]}]
32 DescribeConfigs 1
    > [{k:b r:s [s]}] b@1+ b@3+
    < i [{e:h s? k:b r:s [{s s? b b@1+ b [{s@1+ s@1+ b@1+}]@1+ b@3+ s@3+}]}]
33 AlterConfigs 0
    > [{k:b r:s [{s s?}]}] b
    < i [{e:h s? k:b r:s}]
34 AlterReplicaLogDirs 1
    > [{s [{t:s [p:i]}]}]
    < i [{t:s [{p:i e:h}]}]
37 CreatePartitions 0
    > [{t:s i [{[i]}]}] i b
    < i [{t:s e:h s?}]
42 DeleteGroups 0
    > [g:s]
    < i [{g:s e:h s?@3+}]
43 ElectLeaders 0
    > b@1+ [{t:s [p:i]}] i
    < i e:h@1+ [{t:s [{p:i e:h s?}]}]
44 IncrementalAlterConfigs 0
    > [{k:b r:s [{s b s?}]}] b
    < i [{e:h s? k:b r:s}]
45 AlterPartitionReassignments 0
    > i b@1+ [{t:s [{p:i [i]}]}]
    < i b@1+ e:h s? [{t:s [{p:i e:h s?}]}]
47 OffsetDelete 0
    > g:s [{t:s [{p:i}]}]
    < e:h i [{t:s [{p:i e:h}]}]
61 DescribeProducers 0
    > [{t:s [p:i]}]
    < i [{t:s [{p:i e:h s? [{l i i l i l}]}]}]
65 DescribeTransactions 0
    > [x:s]
    < i [{e:h x:s s i l l h [{t:s [p:i]}]}]
68 ConsumerGroupHeartbeat 0
    > g:s s i s? s? i [t:s] s?@1+ s? [{u [p:i]}]
    < i e:h s? s? i i ?{[{u [p:i]}]}
69 ConsumerGroupDescribe 0
    > [g:s] b
    < i [{e:h s? g:s s i i s [{s s? s? i s s [t:s] s? {[{u t:s [p:i]}]} {[{u t:s [p:i]}]} b@1+}] i}]
76 ShareGroupHeartbeat 1
    > g:s s i s? [t:s]
    < i e:h s? s? i i ?{[{u [p:i]}]}
77 ShareGroupDescribe 1
    > [g:s] b
    < i [{e:h s? g:s s i i s [{s s? i s s [t:s] {[{u t:s [p:i]}]}}] i}]
78 ShareFetch 1
    > g:s? s? i i i i i@1+ i@1+ b@2+ b@2+ [{u [{p:i i@0 [{l l [b]}]}]}] [{u [p:i]}]
    < i e:h s? i@1+ [{u [{p:i e:h s? h s? {i i} B [{l l h}]}]}] [{i s i s?}]
79 ShareAcknowledge 1
    > g:s? s? i b@2+ [{u [{p:i [{l l [b]}]}]}]
    < i e:h s? i@2+ [{u [{p:i e:h s? {i i}}]}] [{i s i s?}]
88 StreamsGroupHeartbeat 0
    > g:s s i i s? s? i ?{i [{s [t:s] [s] [{t:s p:i h [{s s}]}] [t:s] [{t:s p:i h [{s s}]}] [{[h]
      [h] [h]}]}]} [{s [p:i]}] [{s [p:i]}] [{s [p:i]}] s? ?{s h} [{s s}] [{s i l}] [{s i l}] b
    < i e:h s? s i i i@0 i l@1+ [{b s}] [{s [p:i]}] [{s [p:i]}] [{s [p:i]}] b@1+ i [{{s h} [{t:s
      [p:i]}] [{t:s [p:i]}]}]
89 StreamsGroupDescribe 0
    > [g:s] b b@1+
    < i [{e:h s? g:s s i i ?{i [{s [t:s] [t:s] [{t:s p:i h [{s s}]}] [{t:s p:i h [{s s}]}]}]} [{s i
      s? s? s s i s ?{s h} [{s s}] [{s i l}] [{s i l}] {[{s [p:i]}] [{s [p:i]}] [{s [p:i]}]} {[{s
      [p:i]}] [{s [p:i]}] [{s [p:i]}]} b}] i ?{[{s@1+ [{s@1+ b@1+ [t:s]@1+ t:s?@1+ [s]@1+
      [s]@1+}]@1+}]@1+ [{{s@1+ b@1+ [t:s]@1+ t:s?@1+ [s]@1+ [s]@1+}@1+ {s@1+ b@1+ [t:s]@1+ t:s?@1+
      [s]@1+ [s]@1+}@1+}]@1+}@1+ b@1+ s?@1+}]
90 DescribeShareGroupOffsets 0
    > [{g:s [{t:s [p:i]}]}]
    < i [{g:s [{t:s u [{p:i l i l@1+ e:h s?}]}] e:h s?}]
91 AlterShareGroupOffsets 0
    > g:s [{t:s [{p:i l}]}]
    < i e:h s? [{t:s u [{p:i e:h s?}]}]
92 DeleteShareGroupOffsets 0
    > g:s [{t:s}]
    < i e:h s? [{t:s u e:h s?}]
93 StreamsGroupTopologyDescriptionUpdate 0
    > g:s s i {[{s [{s b [t:s] t:s? [s] [s]}]}] [{{s b [t:s] t:s? [s] [s]} {s b [t:s] t:s? [s] [s]}}]}
    < i e:h s?
"""

# A request of these names its partitions, and its response has an error for each.
_ECHOED: Final = frozenset((OFFSET_COMMIT, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT))


class Named(NamedTuple):
    """A place in a frame where one of the names that were searched for occurs.

    Attributes:
        label: what the name is of: TOPIC, GROUP or TRANSACTIONAL_ID.
        start, stop: the range of its bytes in the frame.
        errors: the positions of the error codes that belong to the name; empty in a request.
    """

    label: str
    start: int
    stop: int
    errors: tuple[int, ...]


class _Field(NamedTuple):
    label: str
    kind: str
    nullable: bool
    first: int
    last: int
    parts: "tuple[_Field, ...]"  # of a structure; of an array its one element


class _Layout(NamedTuple):
    oldest: int
    request: tuple[_Field, ...]
    response: tuple[_Field, ...]


@dataclass(slots=True, eq=False)
class _Search:
    """A search for wanted names in one message, with the places found so far."""

    frame: Buffer
    end: int
    wanted: AbstractSet[tuple[str, bytes]]
    compact: bool
    errors: list[int] = field(default_factory=list)
    found: list[Named] = field(default_factory=list)
    creation_at: int = NO_FLAG

    def structure(self, fields: tuple[_Field, ...], pos: int) -> int:
        """Read a structure; returns its end. If it contains a wanted name, its error codes are stored with the name."""
        errors_from, named, resource = len(self.errors), None, ""
        frame, end = self.frame, self.end
        for label, kind, nullable, _, _, parts in fields:
            size = _SIZES.get(kind)
            if size is not None:
                after = skip(pos, size, end)
                if label == _ERROR:
                    self.errors.append(pos)
                elif label == _RESOURCE_TYPE:
                    resource = _RESOURCES.get(frame[pos], "")
                elif label == _CREATION:
                    self.creation_at = pos
                pos = after
            elif kind == "s" and label:
                start, stop = string_span(frame, pos, end, self.compact)
                of = resource if label == _RESOURCE else label
                if (of, bytes(frame[start:stop])) in self.wanted:
                    named = (of, start, stop)
                pos = max(start, stop)
            else:
                pos = self._rest(kind, parts, pos, nullable=nullable)
        if self.compact:
            pos = skip_tags(frame, pos, end)
        if named is not None:
            self._note(named, tuple(self.errors[errors_from:]))
        return pos

    def _rest(self, kind: str, parts: tuple[_Field, ...], pos: int, *, nullable: bool) -> int:
        """Skip a field that is neither a number nor a labelled name; returns its end."""
        frame, end, compact = self.frame, self.end, self.compact
        if kind == "s":
            return skip_string(frame, pos, end, compact)
        if kind == "B":
            return skip_bytes(frame, pos, end, compact)
        if kind == _ARRAY:
            return self._array(parts[0], pos)
        if nullable:
            after = skip(pos, 1, end)
            if frame[pos] > 127:  # -1
                return after
            pos = after
        return self.structure(parts, pos)

    def _array(self, element: _Field, pos: int) -> int:
        frame, end = self.frame, self.end
        elements, pos = count(frame, pos, end, self.compact)
        size = _SIZES.get(element.kind)
        if size is not None:
            return skip(pos, size * max(elements, 0), end)
        if element.kind == _STRUCTURE:
            for _ in range(elements):
                pos = self.structure(element.parts, pos)
            return pos
        for _ in range(elements):
            start, stop = string_span(frame, pos, end, self.compact)
            if element.label and (element.label, bytes(frame[start:stop])) in self.wanted:
                self._note((element.label, start, stop), ())
            pos = max(start, stop)
        return pos

    def _note(self, named: tuple[str, int, int], errors: tuple[int, ...]) -> None:
        self.found.append(Named(*named, errors))
        if len(self.found) > NAMED_MAX or len(errors) > ERRORS_MAX:
            raise OversizedError(f"a name of ours more than {NAMED_MAX} times, or with {ERRORS_MAX} errors")


def definitions() -> str:
    """Return the table of all known layouts as text.

    There are three lines for each API: its key, name and oldest version; the request's fields; the response's fields.
    """
    return _LAYOUTS.strip().replace("\n      ", " ")


def known(api_key: int, version: int) -> bool:
    """Whether the table contains the layout of this version of an API."""
    layout = _TABLE.get(api_key)
    return layout is not None and layout.oldest <= version <= MAX_VERSION[api_key]


def named_first(frame: Buffer, body: int, end: int, api_key: int, version: int) -> list[tuple[str, bytes]]:
    """Return the group and transactional ids that apply to a whole request, each as (label, name).

    They are in its first fields, so the request need not be complete.

    Args:
        body: where the fields begin.
        end: the end of the bytes that have arrived.

    Raises:
        TruncatedError: the bytes before `end` do not contain all of them.
    """
    compact = flexible(api_key, version)
    found = []
    pos = body
    for label, kind, _, _, _, _ in _first_fields(api_key, version):
        if label:
            start, stop = string_span(frame, pos, end, compact)
            found.append((label, bytes(frame[start:stop])))
            pos = max(start, stop)
        elif kind == "s":
            pos = skip_string(frame, pos, end, compact)
        else:
            pos = skip(pos, _SIZES[kind], end)
    return found


def named_in_request(
    frame: Buffer, body: int, api_key: int, version: int, wanted: AbstractSet[tuple[str, bytes]]
) -> list[Named]:
    """Return where the wanted names occur in a complete request.

    Args:
        body: where its fields begin.
        wanted: the names to search for, each as (label, name).

    Raises:
        WireError: it is malformed, or its version is unknown.
    """
    return _search(frame, body, api_key, version, wanted, response=False).found


def creation_at(
    frame: Buffer, body: int, api_key: int, version: int, wanted: AbstractSet[tuple[str, bytes]]
) -> int:
    """Return the offset of allow_auto_topic_creation in a complete Metadata request that names any of `wanted`.

    Returns:
        NO_FLAG if its version has no such flag and always creates topics; NOT_NAMED if it names none of `wanted`.

    Raises:
        WireError: it is malformed, or its version is unknown.
    """
    search = _search(frame, body, api_key, version, wanted, response=False)
    return search.creation_at if search.found else NOT_NAMED


def named_in_response(
    frame: Buffer, api_key: int, version: int, wanted: AbstractSet[tuple[str, bytes]]
) -> list[Named]:
    """Return where the wanted names occur in a complete response, with the error codes that belong to them.

    Args:
        wanted: the names to search for, each as (label, name).

    Raises:
        WireError: it is malformed, or its version is unknown.
    """
    body = response_body_start(frame, 0, len(frame), api_key, version)
    return _search(frame, body, api_key, version, wanted, response=True).found


def refusal(
    frame: Buffer, body: int, api_key: int, version: int, correlation_id: int, error_code: int
) -> bytes:
    """Return a complete response that refuses a whole request with this error code.

    Args:
        frame: the request; its fields begin at `body`.

    Raises:
        WireError: the request is malformed, or its version is unknown.
    """
    _check_version(api_key, version)
    compact = flexible(api_key, version)
    echoes = api_key in _ECHOED and _first_fields(api_key, version)
    topics = _topics_of(frame, body, api_key, version) if echoes else []
    out = [_INT32.pack(correlation_id), b"\0" if compact else b""]
    for one in _fields(api_key, version, response=True):
        if one.kind == _ARRAY and topics:
            out.append(count_bytes(len(topics), compact))
            tags = b"\0" if compact else b""
            for head, partitions in topics:
                out += (head, count_bytes(len(partitions), compact))
                out += [_PARTITION_ERROR.pack(index, error_code) + tags for index in partitions]
                out.append(tags)
        else:
            out.append(_nothing(one, error_code, compact=compact))
    if compact:
        out.append(b"\0")
    body_bytes = b"".join(out)
    return _INT32.pack(len(body_bytes)) + body_bytes


def _nothing(field: _Field, error_code: int, *, compact: bool) -> bytes:
    """Encode the value of one field of a refusal: the error code, or an empty, null or zero value."""
    if field.kind == "s":
        return (b"\0" if compact else b"\xff\xff") if field.nullable else (b"\1" if compact else b"\0\0")
    if field.kind == _ARRAY:
        return count_bytes(0, compact)
    if field.kind == "B":
        return b"\1" if compact else bytes(4)
    if field.kind == _STRUCTURE:
        return b"\xff"
    if field.label == _ERROR:
        return error_code.to_bytes(2, "big")
    # An id of a producer; all other numbers are times, epochs and flags.
    return b"\xff" * 8 if field.kind == "l" else bytes(_SIZES[field.kind])


def _topics_of(frame: Buffer, body: int, api_key: int, version: int) -> list[tuple[bytes, list[int]]]:
    """Return each topic that a request names: the bytes of its name or id, and its partitions."""
    compact, end = flexible(api_key, version), len(frame)
    search = _Search(frame, end, frozenset(), compact=compact)
    topics = []
    pos = body
    for _, kind, _, _, _, parts in _fields(api_key, version, response=False):
        if kind != _ARRAY:
            pos = skip(pos, _SIZES[kind], end) if kind in _SIZES else skip_string(frame, pos, end, compact)
            continue
        name, indexes = parts[0].parts
        topics_count, pos = count(frame, pos, end, compact)
        for _ in range(topics_count):
            start = pos
            pos = skip(pos, 16, end) if name.kind == "u" else skip_string(frame, pos, end, compact)
            head = bytes(frame[start:pos])
            partitions, pos = count(frame, pos, end, compact)
            found = []
            for _ in range(partitions):
                found.append(int32(frame, pos, end))
                element = indexes.parts[0]
                pos = pos + 4 if element.kind == "i" else search.structure(element.parts, pos)
            pos = skip_tags(frame, pos, end) if compact else pos
            topics.append((head, found))
    return topics


def _search(
    frame: Buffer,
    body: int,
    api_key: int,
    version: int,
    wanted: AbstractSet[tuple[str, bytes]],
    *,
    response: bool,
) -> _Search:
    _check_version(api_key, version)
    search = _Search(frame, len(frame), wanted, compact=flexible(api_key, version))
    pos = search.structure(_fields(api_key, version, response=response), body)
    if pos != len(frame):
        raise MalformedFieldError(f"a message of {len(frame)} bytes has its end at byte {pos}")
    return search


def _check_version(api_key: int, version: int) -> None:
    if not known(api_key, version):
        raise UnknownVersionError(f"the layout of version {version} of API {api_key} is not known")


@cache
def _fields(api_key: int, version: int, *, response: bool) -> tuple[_Field, ...]:
    """Return the fields of one version. The cache is bounded, since only known versions are looked up."""
    layout = _TABLE[api_key]
    return _of_version(layout.response if response else layout.request, version)


@cache
def _first_fields(api_key: int, version: int) -> tuple[_Field, ...]:
    """Return the fields of a request up to the last group or transactional id outside of arrays."""
    fields = _fields(api_key, version, response=False)
    labelled = [at for at, field in enumerate(fields) if field.kind == "s" and field.label]
    return fields[: labelled[-1] + 1] if labelled else ()


def _of_version(fields: tuple[_Field, ...], version: int) -> tuple[_Field, ...]:
    return tuple(
        field._replace(parts=_of_version(field.parts, version))
        for field in fields
        if field.first <= version <= field.last
    )


_TOKEN: Final = re.compile(r"\s*(?:([a-z]):)?(\?\{|[\[{\]}]|[bhiluBs])(\??)(?:@(\d+)(?:-(\d+)|(\+))?)?")
_VERSIONS: Final = re.compile(r"(?:@(\d+)(?:-(\d+)|(\+))?)?")


def _parse(text: str, pos: int) -> tuple[tuple[_Field, ...], int]:
    """Parse fields up to a closing bracket; returns them and the bracket's position."""
    fields: list[_Field] = []
    while True:
        token = _TOKEN.match(text, pos)
        if token is None or token[2] in "]}":
            return tuple(fields), pos if token is None else token.start(2)
        label, kind, nullable = token[1] or "", token[2], bool(token[3])
        pos = token.end()
        versions = token.groups()[3:]
        parts: tuple[_Field, ...] = ()
        if kind in ("[", "{", "?{"):
            parts, closed = _parse(text, pos)
            found = _VERSIONS.match(text, closed + 1)
            assert found is not None, "it matches the empty text"
            versions, pos = found.groups(), found.end()
        first = int(versions[0] or 0)
        last = first if versions[0] and not versions[1] and not versions[2] else int(versions[1] or _LATEST)
        nullable = nullable or kind == "?{"
        fields.append(_Field(label, kind[-1], nullable, first, last, parts))


def _read_table() -> dict[int, _Layout]:
    table = {}
    lines = definitions().splitlines()
    for head, request_line, response_line in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        key, _, oldest = head.split()
        request, response = (_parse(line.strip()[2:], 0)[0] for line in (request_line, response_line))
        table[int(key)] = _Layout(int(oldest), request, response)
    return table


_TABLE: Final = _read_table()
