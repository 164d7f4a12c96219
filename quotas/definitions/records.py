"""Quotas as records of a compacted topic: one record for each limit of an entity. Pure.

    key      {"entity":[["user","ann"],["client-id",null]],"limit":"producer_byte_rate"}
    value    {"v":1,"value":2000000,"by":"admin","from":"10.0.0.4:51000","at":"2026-01-31T12:00:00.000Z"}
             no value (a tombstone) removes the limit

Since each limit has a key of its own, concurrent changes of different limits of one entity both stay. A null name is
the default entity. Compaction compares keys byte by byte, so an entity has exactly one spelling, that of `key_of`: a
record with another one is refused, or a tombstone would not remove what it was written for.

Anyone with the permission may write to a topic, so nothing in it is trusted: each record is checked as an alteration
is, and is bounded before it is parsed.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quotas.definitions.alterations import Parts, entity_of_parts, parts_of
from quotas.definitions.definitions import check_entity, check_value
from quotas.definitions.entities import DEFAULT, Entity, ip_name
from quotas.definitions.kinds import KEYS
from quotas.errors import DefinitionError

VERSION: Final = 1
KEY_BYTES_MAX: Final = 128 * 1024  # two names of 32,767 bytes
VALUE_BYTES_MAX: Final = 4 * 1024
_AUTHOR_CHARACTERS_MAX: Final = 200
_NAME_CHARACTERS_MAX: Final = 256  # of an author; a value must fit


class RecordError(ValueError):
    """A record that is not a limit; `cause`: size, key, value, or version."""

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause


class Author(NamedTuple):
    """The author of a change: principal, address, and time (ISO 8601, UTC).

    Attributes:
        claimed: it stood in a record that others may have written, and no signature covers it.
    """

    name: str
    address: str
    at: str
    claimed: bool = False

    @property
    def principal(self) -> str:
        """The principal, as it is shown.

        >>> Author("ann", "", "").principal, Author("ann", "", "", claimed=True).principal
        ('User:ann', 'User:ann (claimed)')
        """
        return f"User:{self.name}{' (claimed)' if self.claimed else ''}"


class Setting(NamedTuple):
    """A limit's value, and who set it; None if the record does not say."""

    value: float
    author: Author | None


def key_of(entity: Entity, limit: str) -> bytes:
    """Return the key of a limit.

    >>> key_of(Entity("ann"), "producer_byte_rate")
    b'{"entity":[["user","ann"]],"limit":"producer_byte_rate"}'
    """
    return _json({"entity": [list(part) for part in parts_of(entity)], "limit": limit})


def value_of(value: float, author: Author) -> bytes:
    """Return the value of a limit.

    >>> value_of(5.0, Author("ann", "::1", "2026-01-31T12:00:00.000Z"))
    b'{"v":1,"value":5,"by":"ann","from":"::1","at":"2026-01-31T12:00:00.000Z"}'
    """
    return _json(
        {
            "v": VERSION,
            "value": _number(value),
            "by": author.name[:_NAME_CHARACTERS_MAX],
            "from": author.address[:_NAME_CHARACTERS_MAX],
            "at": author.at,
        }
    )


def event_of(entity: Entity, limit: str, old: float | None, new: float | None, author: Author) -> bytes:
    """Return the audit event of a changed limit; a missing limit is null.

    >>> event_of(Entity("ann"), "producer_byte_rate", None, 5.0, Author("a", "::1", "2026-01-31T12:00:00.000Z"))
    b'{"v":1,"at":"2026-01-31T12:00:00.000Z","by":"a","from":"::1","entity":[["user","ann"]],"limit":"producer_byte_rate","old":null,"new":5}'
    """
    return _json(
        {
            "v": VERSION,
            "at": author.at,
            "by": author.name[:_NAME_CHARACTERS_MAX],
            "from": author.address[:_NAME_CHARACTERS_MAX],
            "entity": [list(part) for part in parts_of(entity)],
            "limit": limit,
            "old": _number(old),
            "new": _number(new),
        }
    )


def read_key(key: bytes | None) -> tuple[Entity, str]:
    """Return the entity and the limit of a record.

    Raises:
        RecordError: it is not a valid key, or not in the one spelling.

    >>> read_key(b'{"entity":[["topic",null]],"limit":"producer_byte_rate"}')[0].topic
    <default>
    """
    if key is None:
        raise RecordError("key", "a record without a key")
    if len(key) > KEY_BYTES_MAX:
        raise RecordError("size", f"a key of {len(key)} bytes")
    found = _parsed(key, "key")
    entity = _entity(found.get("entity"))
    limit = found.get("limit")
    if entity is None or limit not in KEYS:
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
    """Return the limit that a record sets, and who set it; None for a tombstone. What it says of the author is not
    checked.

    Raises:
        RecordError: it is not a valid value of this entity's limit, or of an unknown version.

    >>> read_setting(Entity("ann"), "producer_byte_rate", b'{"v":1,"value":5,"by":"bob","from":"::1","at":""}')
    Setting(value=5.0, author=Author(name='bob', address='::1', at='', claimed=False))
    """
    if value is None:
        return None
    if len(value) > VALUE_BYTES_MAX:
        raise RecordError("size", f"a value of {len(value)} bytes")
    found = _parsed(value, "value")
    version = found.get("v")
    if version != VERSION or isinstance(version, bool):
        raise RecordError("version", f"version {str(version)[:20]} is unknown to this Sluice")
    number = found.get("value")
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise RecordError("value", "no number")
    try:
        check_value(entity, limit, number, limit)
    except DefinitionError as error:
        raise RecordError("value", error.problem) from None
    return Setting(float(number), _author(found))


def read_value(entity: Entity, limit: str, value: bytes | None) -> float | None:
    """Return the limit that a record sets; None for a tombstone.

    Raises:
        RecordError: as `read_setting`.

    >>> read_value(Entity("ann"), "producer_byte_rate", b'{"v":1,"value":5}')
    5.0
    """
    setting = read_setting(entity, limit, value)
    return None if setting is None else setting.value


def _author(found: Mapping[str, object]) -> Author | None:
    """Return who set a limit; None if the record does not say."""
    name, address, at = (found.get(part) for part in ("by", "from", "at"))
    if not (isinstance(name, str) and isinstance(address, str) and isinstance(at, str)):
        return None
    name, address, at = (text[:_AUTHOR_CHARACTERS_MAX] for text in (name, address, at))
    return Author(name, address, at)


def _number(value: float | None) -> float | None:
    """Write a whole number without a fraction."""
    return int(value) if value is not None and value % 1 == 0 else value


def _entity(parts: Any) -> Entity | None:
    if not isinstance(parts, list):
        return None
    names: Parts = [
        (part[0], part[1])
        for part in parts
        if isinstance(part, list)
        and len(part) == 2
        and isinstance(part[0], str)
        and (part[1] is None or isinstance(part[1], str))
    ]
    return entity_of_parts(names) if len(names) == len(parts) else None


def _parsed(data: bytes, cause: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise RecordError(cause, "not JSON") from None
    if not isinstance(found, dict):
        raise RecordError(cause, "not a JSON object")
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
