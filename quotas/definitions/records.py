"""Quotas as records of a compacted topic: one record for each limit of an entity. Pure.

    key      {"entity":[["user","ann"],["client-id",null]],"limit":"producer_byte_rate"}
    value    {"v":1,"value":2000000,"by":"admin","from":"10.0.0.4:51000","at":"2026-01-31T12:00:00.000Z"}
             no value (a tombstone) removes the limit

Since each limit has a key of its own, concurrent changes of different limits of one entity both stay, and so do those
of two members of a group, each of which is an entity with the limit "member". A null name is
the default entity. Compaction compares keys byte by byte, so an entity has exactly one spelling, that of `key_of`: a
record with another one is refused, or a tombstone would not remove what it was written for.

Every client with the permission may write to a topic, so nothing in it is trusted: each record is checked as an
alteration is, and is bounded before it is parsed.
"""

from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.json import Decoder, encode

from quotas.definitions.alterations import entity_of_parts, parts_of
from quotas.definitions.definitions import check_entity, check_value
from quotas.definitions.entities import DEFAULT, Entity, ip_name
from quotas.definitions.kinds import ALL_KEYS
from quotas.errors import DefinitionError

VERSION: Final = 1
KEY_BYTES_MAX: Final = 128 * 1024  # two names of 32,767 bytes
VALUE_BYTES_MAX: Final = 4 * 1024
_AUTHOR_CHARACTERS_MAX: Final = 200
_NAME_CHARACTERS_MAX: Final = 256  # of an author; a value must fit

T = TypeVar("T")


class _Key(Struct):
    """The JSON of a record's key."""

    entity: list[tuple[str, str | None]]
    limit: str


class _Version(Struct):
    """The one field that values of all versions have."""

    v: Any = None


class _Value(Struct, rename={"name": "by", "address": "from"}):
    """The JSON of a record's value; unless all three of its author's fields are texts, the author is unknown."""

    v: int
    value: float
    name: Any = None
    address: Any = None
    at: Any = None


class _Event(Struct, rename={"name": "by", "address": "from"}):
    """The JSON of an audit event."""

    v: int
    at: str
    name: str
    address: str
    entity: list[tuple[str, str | None]]
    limit: str
    old: float | None
    new: float | None


_KEY: Final = Decoder(_Key)
_VALUE: Final = Decoder(_Value)
_VERSION: Final = Decoder(_Version)


class RecordError(ValueError):
    """A record of the quota topic is not a valid limit.

    Attributes:
        cause: what is wrong, as a label of metrics: "size", "key", "value" or "version".
    """

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause


class Author(NamedTuple):
    """The author of a change of quotas.

    Attributes:
        name: the principal without its type, as "ann" for User:ann.
        address: host and port of the client.
        at: the time of the change, in ISO 8601, UTC; "" if it is not known.
        claimed: whether the author is not proven: the record that names it has no valid signature.
    """

    name: str
    address: str
    at: str
    claimed: bool = False

    @property
    def principal(self) -> str:
        """The principal as text for people, such as "User:ann"; an author that is not proven is marked as claimed.

        >>> Author("ann", "", "").principal, Author("ann", "", "", claimed=True).principal
        ('User:ann', 'User:ann (claimed)')
        """
        return f"User:{self.name}{' (claimed)' if self.claimed else ''}"


class Setting(NamedTuple):
    """The value of a limit, and the author who set it; the author is None if the record does not name one."""

    value: float
    author: Author | None


def key_of(entity: Entity, limit: str) -> bytes:
    """Return the key of the record for one limit of an entity, as JSON bytes.

    >>> key_of(Entity("ann"), "producer_byte_rate")
    b'{"entity":[["user","ann"]],"limit":"producer_byte_rate"}'
    """
    return encode(_Key(_parts(entity), limit))


def value_of(value: float, author: Author) -> bytes:
    """Return the value of the record that sets a limit, as JSON bytes.

    >>> value_of(5.0, Author("ann", "::1", "2026-01-31T12:00:00.000Z"))
    b'{"v":1,"value":5,"by":"ann","from":"::1","at":"2026-01-31T12:00:00.000Z"}'
    """
    return encode(_Value(VERSION, _number(value), *_said(author)))


def event_of(entity: Entity, limit: str, old: float | None, new: float | None, author: Author) -> bytes:
    """Return the audit event of a changed limit as JSON bytes; a missing limit is null.

    >>> event_of(Entity("ann"), "producer_byte_rate", None, 5.0, Author("a", "::1", "2026-01-31T12:00:00.000Z"))
    b'{"v":1,"at":"2026-01-31T12:00:00.000Z","by":"a","from":"::1","entity":[["user","ann"]],"limit":"producer_byte_rate","old":null,"new":5}'
    """
    name, address, at = _said(author)
    before, after = (None if one is None else _number(one) for one in (old, new))
    return encode(_Event(VERSION, at, name, address, _parts(entity), limit, before, after))


def read_key(key: bytes | None) -> tuple[Entity, str]:
    """Return the entity and the quota key that a record's key names.

    Raises:
        RecordError: the key is invalid, or is not spelled exactly as `key_of` writes it.

    >>> read_key(b'{"entity":[["topic",null]],"limit":"producer_byte_rate"}')[0].topic
    <default>
    """
    if key is None:
        raise RecordError("key", "a record without a key")
    if len(key) > KEY_BYTES_MAX:
        raise RecordError("size", f"a key of {len(key)} bytes")
    found = _decoded(_KEY, key, "key")
    entity, limit = entity_of_parts(found.entity), found.limit
    if entity is None or limit not in ALL_KEYS:
        raise RecordError("key", "not an entity and a limit")
    try:
        check_entity(entity, "entity")
    except DefinitionError as error:
        raise RecordError("key", str(error)) from None
    if DEFAULT.value in entity or (isinstance(entity.ip, str) and ip_name(entity.ip) is None):
        raise RecordError("key", "a name that no entity may have")
    if key_of(entity, limit) != key:
        raise RecordError("key", "an entity in another spelling")
    return entity, limit


def read_setting(entity: Entity, limit: str, value: bytes | None) -> Setting | None:
    """Return the limit that a record sets, and who set it; None for a tombstone. The author is not verified.

    Raises:
        RecordError: the value is not valid for this limit of the entity, or has an unknown version.

    >>> read_setting(Entity("ann"), "producer_byte_rate", b'{"v":1,"value":5,"by":"bob","from":"::1","at":""}')
    Setting(value=5.0, author=Author(name='bob', address='::1', at='', claimed=False))
    """
    if value is None:
        return None
    if len(value) > VALUE_BYTES_MAX:
        raise RecordError("size", f"a value of {len(value)} bytes")
    found = _read_value(value)
    try:
        check_value(entity, limit, found.value, limit)
    except DefinitionError as error:
        raise RecordError("value", error.problem) from None
    return Setting(found.value, _author(found))


def _read_value(value: bytes) -> _Value:
    try:
        found = _VALUE.decode(value)
    except (ValueError, RecursionError):
        found = None
    if found is None or found.v != VERSION:  # of another version, which may have other fields, or damaged
        version = _decoded(_VERSION, value, "value").v
        if version != VERSION or isinstance(version, bool):
            raise RecordError("version", f"version {str(version)[:20]} is unknown to this Sluice")
        return _decoded(_VALUE, value, "value")
    return found


def _author(found: _Value) -> Author | None:
    """Return who set a limit; None unless the record has name, address and time."""
    name, address, at = found.name, found.address, found.at
    if not (isinstance(name, str) and isinstance(address, str) and isinstance(at, str)):
        return None
    most = _AUTHOR_CHARACTERS_MAX
    return Author(name[:most], address[:most], at[:most])


def _said(author: Author) -> tuple[str, str, str]:
    """Return name, address and time of an author as the record's texts."""
    name, address = author.name[:_NAME_CHARACTERS_MAX], author.address[:_NAME_CHARACTERS_MAX]
    return _text(name), _text(address), author.at


def _parts(entity: Entity) -> list[tuple[str, str | None]]:
    return [(kind, None if name is None else _text(name)) for kind, name in parts_of(entity)]


def _text(name: str) -> str:
    """Return a name that UTF-8 can encode: each half of a surrogate pair is replaced by a question mark."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


def _number(value: float) -> float:
    """Return a value as JSON writes it: an integer if it is whole, since no limit has more than 63 bits."""
    return int(value) if value % 1 == 0 else value


def _decoded(decoder: Decoder[T], data: bytes, cause: str) -> T:
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(cause, str(error)) from None
