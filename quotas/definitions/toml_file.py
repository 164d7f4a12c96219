"""The quotas file: TOML text ↔ definitions, lossless in both directions (KIP-13, with Kafka's keys).

    [[quota]]
    client_id = "reports"             # or user, both together, ip, topic, or group; "<default>": the default entity
    producer_byte_rate = 2000000      # or "2M": k M G are powers of 1000, Ki Mi Gi of 1024
    consumer_byte_rate = "4M"
    consumer_byte_rate_ceiling = "8M" # terms of a capacity: ceilings, weight, exempt
    hours = "mon-fri 22:00-06:00"     # times at which the entry holds (`times`): from, until, hours, time_zone

    [[group]]                         # `toml_groups`
    name = "team-web"
    client_ids = ["web-*"]

    [[capacity]]
    scope = "broker"                  # or "cluster"
    in = "80M"                        # from clients to brokers
    out = "200M"

Behavior: the checks are Kafka's (kafka-quotas.md §6.1): no empty names, no repeated entity, values greater
than 0, whole numbers for byte rates. An error names the table's index, the key and the value. The proxy opens and
watches files; this module converts text. The literal name "<default>" cannot be written; in Kafka it can (KAFKA-18808).
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from quotas.definitions import times
from quotas.definitions.amounts import parse_amount, write_like
from quotas.definitions.definitions import (
    CAPACITY_SCOPES,
    ENTITIES_MAX,
    Definitions,
    StaticQuotas,
    check_ceilings,
    check_entity,
    check_members,
    check_value,
)
from quotas.definitions.entities import DEFAULT, Entity, Name, canonical, code
from quotas.definitions.kinds import (
    CONSUMER_BYTE_RATE,
    EACH,
    EXEMPT,
    FLAG_KEYS,
    KEYS,
    LONG_MAX,
    MEMBER,
    OWN_KEYS,
    PRODUCER_BYTE_RATE,
    WHOLE_KEYS,
)
from quotas.definitions.toml_groups import Group, edited_group, groups_of, quoted, read_group, render_group
from quotas.errors import AmountError, DefinitionError, FormError, TomlError, hint

# ----------------------------------------------------------------------------------------------------
# `tomllib` with bounds: the result is always shallow, and its values can be written in an error message.
#
# `tomllib` recurses over arrays and inline tables, takes quadratic time for a dotted key's parts, and reads integers
# that Python then refuses to print; its result may be nested too deeply to be copied or compared. Sluice's files need
# none of that.

_DEPTH_MAX: Final = 32
# In one line, outside texts and comments: a key of so many parts, or so many fractions.
_DOTS_MAX: Final = 256
_INTEGER_MAX: Final = 2**63  # TOML's own bound
_SHOWN_CHARACTERS_MAX: Final = 80
_PROBLEM_CHARACTERS_MAX: Final = 200
_NO_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')


def loads(text: str) -> dict[str, object]:
    """Parse a TOML text like `tomllib.loads`, with bounds on dotted keys, depth and integers.

    Raises:
        TomlError: the text is not TOML, or exceeds a bound.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _DOTS_MAX and _NO_KEY.sub("", line).count(".") > _DOTS_MAX:
            raise TomlError(f"line {number} has a key of more than {_DOTS_MAX} parts")
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise TomlError(f"nested deeper than {_DEPTH_MAX}") from None
    except ValueError as error:  # not only tomllib's own: a date that is none, an integer of 5,000 digits
        raise TomlError(str(error)[:_PROBLEM_CHARACTERS_MAX]) from None
    _check(document)
    return document


def shown(value: object) -> str:
    """Format a parsed value in one line of bounded length.

    >>> shown([1, 2]), shown("a" * 100)[-5:]
    ('[1, 2]', 'aa...')
    """
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def _check(document: dict[str, object]) -> None:
    """Raise TomlError for values nested too deeply, and for integers beyond TOML's range."""
    level: list[object] = [document]
    for _ in range(_DEPTH_MAX):
        below: list[object] = []
        for item in level:
            for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
                if isinstance(value, dict | list):
                    below.append(value)
                elif isinstance(value, int) and not -_INTEGER_MAX <= value < _INTEGER_MAX:
                    raise TomlError("an integer has more than 64 bits")
        if not below:
            return
        level = below
    raise TomlError(f"nested deeper than {_DEPTH_MAX}")


# ----------------------------------------------------------------------------------------------------
# The quotas file's text cut into its tables, each read separately.
#
# TOML's own reader takes 45 us per table. Read line by line, a plain table takes 3 us; any other table goes to TOML's
# reader alone. Cutting is sound because each piece is checked: a text whose pieces are all valid TOML, with nothing in
# front of the first table and exactly one table each, has the same meaning as a whole. A wrong cut (a `[[quota]]`
# within a multi-line string) is not valid TOML, and the caller falls back to the whole text.

# What TOML allows behind "#".
COMMENT: Final = r"#[^\x00-\x08\x0a-\x1f\x7f]*"
QUOTA: Final = "quota"
GROUP: Final = "group"
CAPACITY: Final = "capacity"
TABLES: Final = (QUOTA, GROUP, CAPACITY)
HEADER: Final = re.compile(rf"[ \t]*\[\[[ \t]*({'|'.join(TABLES)})[ \t]*\]\][ \t]*(?:{COMMENT})?\r?\n?")
_LINE: Final = re.compile(
    r"[ \t]*(?:"
    # A bare key, then a text without escapes, or a number.
    r"([A-Za-z0-9_-]+)[ \t]*=[ \t]*"
    r"(?:\"([^\"\\\x00-\x08\x0a-\x1f\x7f]*)\"|((?:0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?))"
    rf"[ \t]*)?(?:{COMMENT})?\r?\n?"
)


def blocks(lines: Iterable[str]) -> Iterator[str]:
    r"""Yield the text before the first table (maybe empty), then the text of each table up to the next one.

    >>> list(blocks(["# ours\n", "[[quota]]\n", "a = 1\n", "[[quota]]\n"]))
    ['# ours\n', '[[quota]]\na = 1\n', '[[quota]]\n']
    """
    found: list[str] = []
    for line in lines:
        if "[[" in line and HEADER.fullmatch(line):
            yield "".join(found)
            found.clear()
        found.append(line)
    yield "".join(found)


def kind_of(block: str) -> str:
    """Return which table a block of `blocks` begins with.

    >>> kind_of("[[group]] # web")
    'group'
    """
    if block.startswith("[[quota]]"):
        return QUOTA
    match = HEADER.match(block)
    return QUOTA if match is None else match[1]


def is_preamble(text: str) -> bool:
    """Whether this text before the first table has only comments and blank lines."""
    try:
        return not text or not loads(text)
    except TomlError:
        return False


def table(block: str) -> dict[str, object] | None:
    """Parse one block of `blocks`; None if the text is not exactly one table with comments."""
    found: dict[str, object] = {}
    within = False
    for line in block.split("\n"):
        if not line:
            continue
        if line == "[[quota]]" and not within:  # as in nearly all files
            within = True
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            if within or HEADER.fullmatch(line) is None:
                return _slow(block)
            within = True
            continue
        key, text, number, fraction = match.groups()
        if key is None:
            continue
        if not within or key in found:
            return None
        if number is None:
            found[key] = text
        else:
            found[key] = float(number) if fraction else int(number)
    return found if within else None


def _slow(block: str) -> dict[str, object] | None:
    try:
        document = loads(block)
    except TomlError:
        return None
    tables = document.get(kind_of(block))
    if len(document) == 1 and isinstance(tables, list) and len(tables) == 1 and isinstance(tables[0], dict):
        found: dict[str, object] = tables[0]
        return found
    return None


_CONFIGURATION: Final = (
    "a quotas file has [[quota]], [[group]] and [[capacity]] tables alone; is this Sluice's configuration, which "
    "--config takes?"
)
_PARTS: Final = ("user", "client_id", "ip", "topic", "group")  # of an entity, as a [[quota]] table names it
_LIMITS: Final = {key: key for key in (*KEYS, *OWN_KEYS)}  # keys by their names in the file
_CAPACITY_LIMITS: Final = {"in": PRODUCER_BYTE_RATE, "out": CONSUMER_BYTE_RATE}
_TIMES: Final = frozenset(times.FIELDS)
_SCOPE: Final = "scope"
CAPACITY_FIELDS: Final = (_SCOPE, *_CAPACITY_LIMITS)
_DEFAULT_TEXT: Final = DEFAULT.value
_REMOVE: Final = "remove"

Entries = list[tuple[Entity, dict[str, float]]]
"""Entities with their limits. A group may be among those of two tables: of its own, and of a `[[quota]]`."""


def parse(
    text: str, static: StaticQuotas | None = None, *, removed: list[Entity] | None = None
) -> Definitions:
    """Parse a quotas file, with optional static settings of lower precedence.

    Args:
        removed: gets the entities of `[[quota]]` tables with `remove = true` in place of limits: a file of changes may
            have them. None: such a table is an error.

    Raises:
        DefinitionError: the text is not TOML, or a definition is invalid; the message begins with the path,
        `quota[3].ip`.
    """
    definitions = Definitions(None, static)
    linked: dict[str, Entries] = {}
    places = _Places()
    known: set[str] = set()
    for index, block in enumerate(blocks(_lines_of(text))):
        if index == 0:
            if not is_preamble(block):
                return _parse_whole(text, static, removed)
            continue
        kind = kind_of(block)
        path = places.next(kind)
        found = table(block)
        if found is None:
            return _parse_whole(text, static, removed)
        if removed is not None and kind == QUOTA and _REMOVE in found:
            removed.append(_removed(known, found, path))
        else:
            _take(definitions, linked, known, kind, found, path)
    _put_linked(definitions, linked)
    return definitions


def _lines_of(text: str) -> Iterator[str]:
    """Yield the lines with their ends, one after the other: `io.StringIO` has four bytes a letter."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def piece(block: str, path: str) -> tuple[str, Entries]:
    """Parse the text of one table; returns its name, which no other table of a file may have, and its entities.

    Raises:
        DefinitionError: the entity or a limit is invalid; `path` is its place in the file, for the message.
        FormError: the text is not one table.
    """
    found = table(block)
    if found is None:
        raise FormError(f"{path} is not one [[{kind_of(block)}]] table")
    return _piece(kind_of(block), found, path)


def _piece(kind: str, found: Mapping[str, object], path: str) -> tuple[str, Entries]:
    if kind == GROUP:
        group = read_group(found, path)
        for entity, _ in group.entries():
            check_entity(entity, path)
        return _group_piece(group.name), list(group.entries())
    entity, values = _entry(found, path) if kind == QUOTA else _capacity(found, path)
    return code(*entity), [(entity, values)]


def _group_piece(name: str) -> str:
    """Return the name of a group's `[[group]]` table; its `[[quota]]` has the group's code."""
    return f"{GROUP} {name}"


class _Places:
    """Counts the tables of each kind; gives each its place in the file, such as quota[3]."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(TABLES, 0)

    def next(self, kind: str) -> str:
        """Return the place of the next table of this kind."""
        self._counts[kind] += 1
        return f"{kind}[{self._counts[kind] - 1}]"


def _take(
    definitions: Definitions,
    linked: dict[str, Entries],
    known: set[str],
    kind: str,
    found: Mapping[str, object],
    path: str,
) -> None:
    """Put the entity of a table into `definitions`; those that depend on other tables into `linked`."""
    name, entries = _piece(kind, found, path)
    if name in known:
        raise DefinitionError(path, f"{_describe(kind, entries)} is defined twice")
    if kind != QUOTA or entries[0][0].group is not None:
        known.add(name)
        linked[name] = entries
        return
    entity, values = entries[0]
    known.add(definitions.put(entity, values, path, checked=entity.when is None))


def _removed(known: set[str], found: Mapping[str, object], path: str) -> Entity:
    """Return the entity of a table that has `remove = true` in place of limits."""
    if found[_REMOVE] is not True:
        raise DefinitionError(f"{path}.{_REMOVE}", f"must be true, not {shown(found[_REMOVE])}")
    entity, values = _named({key: value for key, value in found.items() if key != _REMOVE}, path)
    if values:
        raise DefinitionError(
            path, f"has limits and {_REMOVE} = true: an entity that is removed has no limit"
        )
    name = code(*entity)
    if name in known:
        raise DefinitionError(path, f"{_describe(QUOTA, [(entity, {})])} is defined twice")
    known.add(name)
    return entity


def _put_linked(definitions: Definitions, linked: Mapping[str, Entries]) -> None:
    for entity, values in _joined(linked).items():
        definitions.put(entity, values)


def _joined(linked: Mapping[str, Entries]) -> dict[Entity, dict[str, float]]:
    """Return the entities of tables that depend on each other, each with all of its limits.

    Raises:
        DefinitionError: two tables contradict each other.
    """
    found: dict[Entity, dict[str, float]] = {}
    for entries in linked.values():
        for entity, values in entries:
            found.setdefault(entity, {}).update(values)
    check_members(entity for entity, values in found.items() if MEMBER in values)
    one, other = (found.get(Entity(capacity=scope), {}) for scope in CAPACITY_SCOPES)
    for name, key in _CAPACITY_LIMITS.items():
        if key in one and key in other:
            scopes = " and ".join(CAPACITY_SCOPES)
            raise DefinitionError(
                f"{CAPACITY}.{name}", f"is stated for the scopes {scopes}; state one of them"
            )
    return found


def _parse_whole(text: str, static: StaticQuotas | None, removed: list[Entity] | None) -> Definitions:
    """Parse a text in any of TOML's forms."""
    if removed is not None:
        removed.clear()
    try:
        document = loads(text)
    except TomlError as error:
        raise DefinitionError("", f"not TOML: {error}") from error
    for key in document:
        if key not in TABLES:
            raise DefinitionError(str(key), _unknown(str(key), document[key]))
    definitions = Definitions(None, static)
    linked: dict[str, Entries] = {}
    known: set[str] = set()
    for kind in TABLES:
        tables = document.get(kind, [])
        if not isinstance(tables, list):
            raise DefinitionError(kind, f"must be a list of [[{kind}]] tables, not {shown(tables)}")
        for index, found in enumerate(tables):
            path = f"{kind}[{index}]"
            if not isinstance(found, dict):
                raise DefinitionError(path, f"must be a table, not {shown(found)}")
            if removed is not None and kind == QUOTA and _REMOVE in found:
                removed.append(_removed(known, found, path))
                continue
            _take(definitions, linked, known, kind, found, path)
    _put_linked(definitions, linked)
    return definitions


def _unknown(key: str, value: object) -> str:
    """Return the message for an unknown key or table; it does not show a table's values, since one may be a
    password.
    """
    if isinstance(value, list) and all(isinstance(item, dict) for item in value) and key == "quotas":
        return "unknown table; did you mean [[quota]]?"
    if isinstance(value, dict | list):
        return _CONFIGURATION
    return f"unknown key, value {shown(value)}; known: {', '.join(TABLES)}"


def render(definitions: Definitions) -> str:
    """Return the text of a quotas file with these quotas; static settings are not part of it."""
    groups = groups_of(definitions.entries())
    texts: list[str] = []
    for entity, values in definitions.entries():
        group = groups.pop(entity.group, None) if entity.group is not None else None
        if group is not None and not group.empty:
            texts.append(render_group(group))
        limits = {key: value for key, value in values.items() if key not in (EACH, MEMBER)}
        if limits:
            texts.append(render_table(entity, limits))
    return "\n".join(texts)


def render_table(entity: Entity, values: Mapping[str, float]) -> str:
    """Return the text of one entity's `[[quota]]` or `[[capacity]]` table, with a newline at its end."""
    if entity.capacity is not None:
        lines = [f"[[{CAPACITY}]]\n", f"{_SCOPE} = {quoted(entity.capacity)}\n"]
    else:
        lines = [f"[[{QUOTA}]]\n"]
    for part in _PARTS:
        name = getattr(entity, part)
        if name is not None:
            lines.append(f"{part} = {quoted(_DEFAULT_TEXT if name is DEFAULT else str(name))}\n")
    if entity.when is not None:
        for field, value in times.parse(entity.when).fields().items():
            lines.append(f"{field} = {value if field in (times.FROM, times.UNTIL) else quoted(value)}\n")
    names = {key: name for name, key in _names_of(entity).items()}
    lines += [f"{names[key]} = {render_value(key, value)}\n" for key, value in values.items()]
    return "".join(lines)


def _names_of(entity: Entity) -> Mapping[str, str]:
    """Return the quota keys of an entity's table, by their names in the file."""
    return _LIMITS if entity.capacity is None else _CAPACITY_LIMITS


def render_value(key: str, value: float) -> str:
    """Return a limit as a TOML value; without a fraction for keys that take whole numbers, and true for flags.

    >>> render_value("producer_byte_rate", 2e6), render_value("request_percentage", 2e6), render_value("exempt", 1.0)
    ('2000000', '2000000.0', 'true')
    """
    if key in FLAG_KEYS:
        return "true"
    return str(int(value)) if key in WHOLE_KEYS else repr(float(value))


def parse_value(key: str, value: object, path: str) -> float:
    """Parse the value of a quota key: a limit (`parse_limit`), or true for a flag such as `exempt`, which is 1.

    >>> parse_value("exempt", True, "x"), parse_value("weight", "2", "x")
    (1.0, 2.0)
    """
    if key in FLAG_KEYS:
        if value is not True and value not in ("true", 1, "1"):
            raise DefinitionError(path, f"must be true, not {shown(value)}; without the key it is not so")
        return 1.0
    return parse_limit(value, path)


def parse_limit(value: object, path: str) -> float:
    """Parse a limit in a quotas file: an amount (`parse_amount`) that is not too large for Kafka.

    >>> parse_limit("2M", "x"), parse_limit("1.5Ki", "x"), parse_limit(7, "x")
    (2000000.0, 1536.0, 7.0)
    """
    try:
        amount = parse_amount(value)
    except AmountError as error:
        raise DefinitionError(path, f"{error}, not {shown(value)}") from None
    if amount > LONG_MAX:
        raise DefinitionError(path, f"{shown(value)} is too large")
    return float(amount)


def _entry(table: Mapping[str, object], path: str) -> tuple[Entity, dict[str, float]]:
    """Return the entity and the limits, at least one, of a `[[quota]]` table."""
    entity, values = _named(table, path)
    if not values:
        raise DefinitionError(path, f"{_describe(QUOTA, [(entity, {})])} has no limit")
    if len(values) > 1:
        check_ceilings(values, path)
    return entity, values


def _named(table: Mapping[str, object], path: str) -> tuple[Entity, dict[str, float]]:
    """Return the entity of a `[[quota]]` table, and its limits, which may be none."""
    names: dict[str, Name] = {}
    for key, value in table.items():
        if key in _LIMITS or key in times.FIELDS:
            continue
        if key not in _PARTS:
            known = (*_PARTS, *_LIMITS, *times.FIELDS)
            raise DefinitionError(f"{path}.{key}", f"unknown key, value {shown(value)}; {hint(key, known)}")
        if not isinstance(value, str):
            raise DefinitionError(f"{path}.{key}", f"must be a string, not {shown(value)}")
        names[key] = DEFAULT if value == _DEFAULT_TEXT else value
    entity = canonical(Entity(**names))  # type: ignore[arg-type]  # a default group is refused by check_entity
    check_entity(entity, path)
    if not _TIMES.isdisjoint(table):
        when = {field: table[field] for field in times.FIELDS if field in table}
        entity = entity._replace(when=str(times.read(when, path)))
    if entity.group is not None and len(names) > 1:
        others = " or ".join(part for part in _PARTS if part != "group")
        raise DefinitionError(f"{path}.group", f"{entity.group!r} cannot be combined with {others}")
    return entity, _values(entity, table, path)


def _values(entity: Entity, table: Mapping[str, object], path: str) -> dict[str, float]:
    names = _names_of(entity)
    values: dict[str, float] = {}
    for name, written in table.items():
        key = names.get(name)
        if key is not None and not (key == EXEMPT and written is False):
            where = f"{path}.{name}"
            values[key] = value = parse_value(key, written, where)
            check_value(entity, key, value, where)
    return values


def _capacity(table: Mapping[str, object], path: str) -> tuple[Entity, dict[str, float]]:
    """Return the entity and the values of one `[[capacity]]` table."""
    for name, value in table.items():
        if name != _SCOPE and name not in _CAPACITY_LIMITS:
            problem = f"unknown key, value {shown(value)}; {hint(name, CAPACITY_FIELDS)}"
            raise DefinitionError(f"{path}.{name}", problem)
    scope = table.get(_SCOPE)
    if scope not in CAPACITY_SCOPES:
        raise DefinitionError(
            f"{path}.{_SCOPE}", 'must be "broker" (of each broker) or "cluster" (of all brokers together)'
        )
    entity = Entity(capacity=str(scope))
    values = _values(entity, table, path)
    if not values:
        raise DefinitionError(path, "states no capacity: in (from clients to brokers), out, or both")
    return entity, values


def _describe(kind: str, entries: Entries) -> str:
    entity = entries[0][0]
    if kind == GROUP:
        return f"{GROUP} {entity.group!r}"
    return ", ".join(
        f"{part} {name!r}" for part, name in zip(Entity._fields, entity, strict=True) if name is not None
    )


# ----------------------------------------------------------------------------------------------------
# Edits the quotas file's text: comments, order and form of everything unchanged stay (alterations of KIP-546,
# kafka-quotas.md §6.1).
#
#     | document, changed, gone = Document.read(lines)
#     | edit = document.edit([(Entity(client_id="a"), {"producer_byte_rate": 2e6})])
#     | "".join(document.text(edit))      # the new text; when it is on disk:
#     | document.apply(edit)
#
# Behavior: a changed limit keeps its line, its form ("2M" becomes "4M") and the comment behind it; a new limit is added
# after the last one; the table of an entity without limits is removed. A comment on a line of its own always stays; if
# its entity returns, its table is written at the same place. The table of a new entity is appended. An edited table is
# parsed again before it is used: a form that the line editor does not know (a quoted key with escapes) is written anew,
# in plain form.
#
# A file that is not a sequence of such tables (one array in one line) is read but not edited: FormError. This
# module does no IO. Every loop over all tables iterates through `pace`, so that the caller can slow it down; freeing
# 100,000 tables at once takes Python tens of milliseconds, so texts are kept and shared.

Change = tuple[Entity, Mapping[str, float]]
"""An entity and all its new limits; without limits the entity is removed."""
Edit = dict[str, str]
"""New texts of tables by the entity's code; "" removes a table."""
Pace = Callable[[Iterable[tuple[str, str]]], Iterable[tuple[str, str]]]

_PREAMBLE: Final = ""  # no entity's code
_LINKED: Final = ("g", "c", "w")  # the codes and names of tables that may depend on others begin so
_PIECES_AT_ONCE: Final = 1000  # joined in one go: about 0.1 ms
_LIMIT: Final = re.compile(
    r"""([ \t]*["']?([A-Za-z_]+)["']?[ \t]*=[ \t]*)("[^"]*"|'[^']*'|[^\s#"']+)(.*)""", re.DOTALL
)


class Document:
    """The text of a quotas file, cut into its tables, so that one can be edited and all others stay as they are."""

    def __init__(
        self, pieces: dict[str, str] | None = None, linked: dict[str, Entries] | None = None
    ) -> None:
        self._pieces = pieces or {_PREAMBLE: ""}
        self._linked = linked or {}  # what tables of groups and capacities stand for, by name

    @classmethod
    def read(
        cls, lines: Iterable[str], before: "Document | None" = None, pace: Pace = iter
    ) -> tuple["Document", Definitions, list[str]]:
        """Read a quotas file; tables whose text is the same as in `before` are not parsed again.

        Returns: the document, the entities with new or changed text and their limits, and the codes of the entities
        that are removed.

        Args:
            lines: the lines of the file.
            before: the document as it was last read; None: all tables are parsed.
            pace: wraps an iterable in one that may pause between items, for long loops in a thread.

        Raises:
            DefinitionError: an invalid definition.
            FormError: the text is not a sequence of tables.
        """
        old = before._pieces if before else {}
        old_linked = before._linked if before else {}
        linked: dict[str, Entries] = {}
        places = _Places()
        known = {text: name for name, text in pace(old.items()) if name}
        pieces: dict[str, str] = {}
        changed = Definitions()
        for index, text in enumerate(blocks(lines)):
            if index == 0:
                if not is_preamble(text):
                    raise FormError("what stands before the first table is more than comments")
                pieces[_PREAMBLE] = text
                continue
            kind = kind_of(text)
            path = places.next(kind)
            name = known.pop(text, None)  # so that little is left of it when it is freed
            if name is not None:
                if name in old_linked:
                    linked[name] = old_linked[name]
            else:
                name, entries = piece(text, path)
                if kind != QUOTA or entries[0][0].group is not None:
                    linked[name] = entries
                else:
                    entity, values = entries[0]
                    # The same text as its own, which is then once in memory.
                    name = changed.put(entity, values, path, checked=entity.when is None)
            if name in pieces:
                raise DefinitionError(path, "this entity is defined twice")
            if len(pieces) > ENTITIES_MAX:
                raise DefinitionError(path, f"more than {ENTITIES_MAX} entities")
            pieces[name] = old[name] if name in old and old[name] == text else text
        gone = [
            name for name, _ in pace(old.items()) if name not in pieces and name not in old_linked
        ] + _put_differences(changed, _joined(old_linked), _joined(linked))
        return cls(pieces, linked), changed, gone

    def empty(self, pace: Pace = iter) -> None:
        """Free this document's texts one by one, with the pauses of `pace`, after another one has replaced it."""
        for _ in pace([("", "")] * len(self._pieces)):
            self._pieces.popitem()

    def edit(self, changes: Iterable[Change]) -> Edit:
        """Return the new texts of the changed tables, without changing this document.

        Args:
            changes: the new limits, at most one change for each entity.
        """
        edit: Edit = {}
        newline = _newline(self._pieces[next(reversed(self._pieces))])
        groups: dict[str, Group] = {}
        for entity, values in changes:
            limits = values
            if entity.group is not None and entity.when is None:
                group = groups.get(entity.group) or self._group(entity.group)
                groups[entity.group] = group.changed(entity, values)
                if entity.user is not None or entity.client_id is not None:
                    continue
                limits = {key: value for key, value in values.items() if key != EACH}
                if not limits and code(*entity) not in self._pieces:
                    continue
            name = code(*entity)
            text = edit.get(name, self._pieces.get(name, ""))
            if limits:
                if name not in self._pieces:
                    self._separate(edit, name)
                edit[name] = _with_limits(text, entity, limits, newline)
            else:
                edit[name] = "".join(_comments(text))
        for name, group in groups.items():
            self._edit_group(edit, name, group, newline)
        return edit

    def _group(self, name: str) -> Group:
        """Return the group as its `[[group]]` table has it; an empty one if there is none."""
        return groups_of(self._linked.get(_group_piece(name), [])).get(name, Group(name))

    def _edit_group(self, edit: Edit, name: str, group: Group, newline: str) -> None:
        piece_name, before = _group_piece(name), self._group(name)
        if group == before:
            return
        text = edit.get(piece_name, self._pieces.get(piece_name, ""))
        if group.empty:
            edit[piece_name] = "".join(_comments(text))
            return
        if piece_name not in self._pieces:
            self._separate(edit, piece_name)
        edit[piece_name] = _with_group(text, before, group, newline)

    def text(self, edit: Edit, pace: Pace = iter) -> Iterator[str]:
        """Yield the text of the whole file with the edit applied, in pieces; this document does not change."""
        changed = edit.get
        pieces = (changed(name, text) for name, text in pace(self._pieces.items()))
        while part := list(islice(pieces, _PIECES_AT_ONCE)):
            yield "".join(part)
        yield from (text for name, text in edit.items() if name not in self._pieces)

    def apply(self, edit: Edit) -> None:
        """Apply an edit to this document; to be called after the new text is on disk."""
        for name, text in edit.items():
            self._linked.pop(name, None)
            if name[:1] in _LINKED and table(text) is not None:
                entries = piece(text, "")[1]
                if kind_of(text) != QUOTA or entries[0][0].group is not None:
                    self._linked[name] = entries
            if text or name == _PREAMBLE:
                self._pieces[name] = text
            else:
                self._pieces.pop(name, None)

    def _separate(self, edit: Edit, name: str) -> None:
        """Separate a new last table by an empty line, and make the text before it end with a newline."""
        if any(other not in self._pieces and other != name for other in edit):
            return  # it follows another new one
        last = next(reversed(self._pieces))
        text = edit.get(last, self._pieces[last])
        newline = _newline(text)
        if text and not text.endswith("\n"):
            text += newline
        if text and not text.endswith(("\n\n", "\n\r\n")):
            edit[last] = text + newline


def _put_differences(
    changed: Definitions,
    before: Mapping[Entity, Mapping[str, float]],
    after: Mapping[Entity, Mapping[str, float]],
) -> list[str]:
    """Put what is new or differs into `changed`; returns the codes of what is gone."""
    for entity, values in after.items():
        if before.get(entity) != values:
            changed.put(entity, values)
    return [code(*entity) for entity in before if entity not in after]


def _with_group(text: str, before: Group, group: Group, newline: str) -> str:
    """Return the text of a group's table with exactly these members and this budget."""
    edited = edited_group(text, before, group) if table(text) is not None else ""
    try:
        if edited and piece(edited, "")[1] == group.entries():
            return edited
    except (DefinitionError, FormError):
        pass  # a form that is not known here: written anew below
    return _anew(text, render_group(group), newline)


def _with_limits(text: str, entity: Entity, values: Mapping[str, float], newline: str) -> str:
    """Return one table's text with exactly these limits."""
    old = table(text) if text else None
    if old is not None:
        edited = "".join(_lines(text, old, entity, values))
        try:
            if piece(edited, "") == (code(*entity), [(entity, values)]):
                return edited
        except (DefinitionError, FormError):
            pass  # a form that is not known here: written anew below
    return _anew(text, render_table(entity, values), newline)


def _anew(text: str, rendered: str, newline: str) -> str:
    """Return a table's new text, with the comments of its old one."""
    before, behind = _comments(text)
    if not text or table(text) is None:  # what stands for a table that was taken away are its comments
        before, behind = before + behind, newline
    if before and not before.endswith("\n"):
        before += newline
    return before + rendered.replace("\n", newline) + behind


def _lines(text: str, old: Mapping[str, object], entity: Entity, values: Mapping[str, float]) -> list[str]:
    found: list[str] = []
    names = _names_of(entity)
    left = dict(values)
    behind = 0  # where the table's last line ends
    for line in _split(text):
        match = _LIMIT.match(line)
        name = match[2] if match else ""
        if match and name in names:
            key = names[name]
            if key not in left:
                continue
            value = left.pop(key)
            same = _same(key, old.get(name, 0), value)
            found.append(line if same else f"{match[1]}{_rendered(key, value, match[3])}{match[4]}")
        else:
            found.append(line)
        if match or HEADER.fullmatch(line):
            behind = len(found)
    newline = _newline(text)
    if left and not found[behind - 1].endswith("\n"):
        found[behind - 1] += newline
    written = {key: name for name, key in names.items()}
    found[behind:behind] = [
        f"{written[key]} = {render_value(key, value)}{newline}" for key, value in left.items()
    ]
    return found


def _same(key: str, written: object, value: float) -> bool:
    """Whether what is written is this value of a key."""
    try:
        return parse_value(key, written, key) == value
    except DefinitionError:
        return False


def _rendered(key: str, value: float, before: str) -> str:
    """Render a limit in the form of the one that it replaces: "2M" becomes "4M"."""
    quote = before[0]
    if quote in "\"'" and key in WHOLE_KEYS:
        return f"{quote}{write_like(int(value), before.strip(quote))}{quote}"
    return render_value(key, value)


def _comments(text: str) -> tuple[str, str]:
    """Return the comments that remain without the table: those on lines of their own, within it and behind it."""
    lines = _split(text)
    bare = [line.strip() for line in lines]
    last = max((index for index, line in enumerate(bare) if line and line[0] != "#"), default=-1)
    within = "".join(
        line for line, said in zip(lines[: last + 1], bare, strict=False) if said.startswith("#")
    )
    behind = "".join(lines[last + 1 :])
    return within, behind if within or behind.strip() else ""


def _split(text: str) -> list[str]:
    """Split into lines, keeping line ends; only a line feed ends a line, as in TOML."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
