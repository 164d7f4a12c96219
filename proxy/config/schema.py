"""How a key is declared, and how a value of TOML or of the environment is read by its declaration.

A table of the configuration is a frozen msgspec Struct (`proxy.config.options`) with one field for each key:

    idle_seconds: Annotated[float, number(0.001, DAY_SECONDS, "seconds")] = 600.0

Name, type and default, and in `Key` the range, the unit and whether a change applies live. What reads a value, compares
two configurations at a reload, or tests docs/configuration.md, takes it from there.

Non-obvious:
    - A value is read in two steps: its text (`"2M"`, `"a:1,b:2"`, `"true"`: variables are texts) becomes a plain value,
      then msgspec checks type and range. The errors of both become a ConfigError in `Key.read`, and nowhere else.
    - Ranges limit what is written, and are no part of the Struct's types: a worker's part of a limit may be below what
      an operator may write, and the same Struct carries it over the link.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from proxy.system.errors import ConfigError
from proxy.system.hosts import is_host, is_ip
from quotas.definitions.amounts import parse_amount, parse_whole

PORT_MAX: Final = 65535
RATE_MAX: Final = 2**63 - 1  # Kafka's own "unlimited" for producer_byte_rate and consumer_byte_rate
_HIDDEN: Final = frozenset(("password", "key_password", "environ", "source"))  # in the `repr` of a table
_SECRETS: Final = ("password", "sasl_password", "key_password", "secret")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Address(NamedTuple):
    """A host (name or literal, IPv6 without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@runtime_checkable
class Network(Protocol):
    """An IPv4Network or an IPv6Network. A protocol, since msgspec does not accept a union of foreign classes."""

    def __contains__(self, address: object, /) -> bool: ...


class Options(Struct, frozen=True):
    """One table of the configuration; its fields are the keys."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING
    """Keys of Kafka's clients that are not supported in this table, and why."""

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in _HIDDEN)
        return f"{type(self).__name__}({', '.join(shown)})"

    def settled(self, path: str) -> Self:  # noqa: ARG002  # for errors of the tables that override it
        """Check the keys of this table against each other, and fill in defaults that other keys of it decide.

        Args:
            path: of the table, for errors.

        Returns: the options with these defaults.

        Raises:
            ConfigError: the keys contradict each other.
        """
        return self


Table = TypeVar("Table", bound=Options)


# ----------------------------------------------------------------------------------------------------
# The declaration of one key


class Key(Struct, frozen=True, kw_only=True, eq=False):
    """The declaration of one key of the configuration, as an annotation of its field.

    A field may have several `Key`s, which are combined; if two of them set the same argument, the last one applies.

    Args:
        type: the type of the written value, without None; by default that of the field.
        range: the numbers or lengths that are allowed.
        parse: converts the written value to a plain one, or raises ValueError; by default the parser of the type.
        words: texts that stand for a certain value, as "" for None.
        must: what the value must be, for errors; by default made from type and range.
        unit: the unit of a bare number; "" without one.
        live: True when a changed value applies at reload, False when it needs a restart.
        secret: True when no error may show the value.
        refused: keys of the table that are not supported there, and why.
    """

    type: Any = None
    range: Meta = Meta()
    parse: Callable[[Any], Any] | None = None
    words: Mapping[str, Any] = _NOTHING
    must: str = ""
    unit: str = ""
    live: bool = False
    secret: bool = False
    refused: Mapping[str, str] = _NOTHING

    def read(self, path: str, value: object) -> Any:
        """Convert a value, as TOML or the environment has it, to the value of the key.

        Args:
            path: of the key, for errors.

        Raises:
            ConfigError: it is not what the key must be.
        """
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        parse = self.parse or _PARSERS.get(self.type)
        try:
            plain = value if parse is None else parse(value)
            if get_origin(self.type) is tuple:
                return self._list(path, plain, value)
            if get_origin(self.type) is Mapping:
                return self._mapping(path, plain, value)
            if is_table(self.type):
                return read_table(self.type, path, plain, self.refused)
            return convert(plain, _within(self))
        except ValidationError:
            problem = self.allowed
        except ValueError as error:
            problem = str(error)
        raise ConfigError(path, problem, None if self.secret else value)

    def _list(self, path: str, plain: object, written: object) -> tuple[Any, ...]:
        """Read the items of a list, or of a text with commas."""
        items = plain.split(",") if isinstance(plain, str) and plain.strip() else plain
        if not isinstance(items, list):
            raise ValueError(self.allowed)
        convert(items, Annotated[list[Any], self.range])
        item = key_of(get_args(self.type)[0])
        return tuple(
            item.read(
                path if isinstance(written, str) else f"{path}[{index}]",
                one.strip() if isinstance(one, str) else one,
            )
            for index, one in enumerate(items)
        )

    def _mapping(self, path: str, plain: object, written: object) -> Mapping[Any, Any]:
        """Read the entries of a table whose keys are not ours, or of a text for one."""
        if not isinstance(plain, dict):
            raise ValueError(self.allowed)
        convert(plain, Annotated[dict[Any, Any], self.range])
        name_key, value_key = map(key_of, get_args(self.type))
        place = "{}[{}]" if isinstance(written, str) else "{}.{}"
        found = {
            name_key.read(where, name): value_key.read(where, value)
            for name, value in plain.items()
            for where in [place.format(path, name)]
        }
        return MappingProxyType(dict(sorted(found.items())))

    @property
    def allowed(self) -> str:
        """What the value must be, as text for an error and the documentation."""
        if self.must:
            return self.must
        if names := self.choices:
            return "must be " + " or ".join(f'"{name}"' for name in names)
        if self.type is bool:
            return "must be true or false"
        low, high = self.range.ge, self.range.le
        if self.type is int:
            return f"must be between {low} and {high}"
        return f"must be between {low:g} and {high:g} seconds"

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed texts, if only certain texts are allowed; else empty."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


def number(low: float, high: float, unit: str = "") -> Key:
    """Declare a number between two bounds."""
    return Key(range=Meta(ge=low, le=high), unit=unit)


def one_of(*names: str) -> Key:
    """Declare a text that must be one of these names, for a field whose type is `str` and not a Literal."""
    return Key(type=Literal[names])


def read_value(path: str, annotation: Any, value: object) -> Any:
    """Convert a value from outside the configuration, as of a command's option, by the rules for keys of this type.

    Args:
        path: what errors call the value.
        annotation: the declared type, as that of a field of `Options`.

    Raises:
        ConfigError: it is not what it must be.

    >>> read_value("--throttle", Rate, "2M")
    2000000
    """
    return key_of(annotation).read(path, value)


LIVE: Final = Key(live=True)
NONE: Final = Key(words={"": None})


@cache
def key_of(annotation: Any) -> Key:
    """Return the declaration of a field from its annotation, with all `Key`s in it combined."""
    notes: list[Key] = []
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Annotated:
        notes.insert(0, key_of(annotation))
    said: dict[str, Any] = {"type": annotation}
    for note in notes:
        said |= {
            name: value
            for name in Key.__struct_fields__
            if (value := getattr(note, name)) != getattr(_UNSAID, name)
        }
    return Key(**said)


_UNSAID: Final = Key()


@cache
def _within(key: Key) -> Any:
    """Return the type for msgspec: that of the key, with its range."""
    return Annotated[key.type, key.range]


@cache
def keys_of(options: type[Options]) -> Mapping[str, Key]:
    """Return the keys of a table, by name."""
    hints = get_type_hints(options, include_extras=True)
    return {name: key_of(hints[name]) for name in options.__struct_fields__}


def is_table(kind: object) -> bool:
    """Whether this is a subclass of `Options`: the type of a table."""
    return isinstance(kind, type) and issubclass(kind, Options)


# ----------------------------------------------------------------------------------------------------
# A table


def read_table(
    options: type[Table], path: str, table: object, refused: Mapping[str, str] = _NOTHING
) -> Table:
    """Read a table's values and create its options.

    Args:
        options: the options' class.
        path: of the table, for errors.
        table: what TOML or the environment holds.
        refused: keys that are not supported at this place, and why.

    Raises:
        ConfigError: the first key that is unknown or wrong.
    """
    if not isinstance(table, dict):
        name = re.sub(r"\[\d+\]", "", path)
        raise ConfigError(
            path,
            f"must be a table: {f'[[{name}]]' if path.endswith(']') else f'[{name}]'}",
            None if isinstance(table, list) else table,  # it may hold a password
        )
    keys = keys_of(options)
    refuse_unknown(
        table, [name for name in keys if name not in refused], path, {**options.REFUSED, **refused}
    )
    found = options(**{name: keys[name].read(f"{path}.{name}", value) for name, value in table.items()})
    return found.settled(path)


def refuse_unknown(
    table: Mapping[str, object], known: list[str], path: str, refused: Mapping[str, str] = _NOTHING
) -> None:
    """Check that a table has only known keys.

    Args:
        refused: keys that are known, but not supported here, and why.

    Raises:
        ConfigError: the first key that is unknown or refused.
    """
    for name, value in table.items():
        if name in known:
            continue
        where = f"{path}.{name}" if path else name
        shown = None if get_close_matches(name, _SECRETS) else value  # a misspelt password is a password
        if name in refused:
            raise ConfigError(where, f"{refused[name]}: leave it out", shown)
        is_one = isinstance(value, Mapping) or _is_tables(value)
        noun = "table" if is_one else "key"
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known {noun}s: {', '.join(known)}"
        raise ConfigError(where, f"unknown {noun}{hint}", None if is_one else shown)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def with_absolute_paths(options: Table, base: Path) -> Table:
    """Return the options with all relative paths in them made absolute; they are relative to `base`."""
    changed: dict[str, object] = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if isinstance(value, Path):
            changed[name] = base / value
        elif isinstance(value, Options):
            changed[name] = with_absolute_paths(value, base)
        elif isinstance(value, tuple) and value and isinstance(value[0], Options):
            changed[name] = tuple(with_absolute_paths(one, base) for one in value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Path):
            changed[name] = tuple(base / one for one in value)
    return replace(options, **changed)


# ----------------------------------------------------------------------------------------------------
# Texts -> plain values. Each raises ValueError, with what the value must be.


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a string that is not empty")
    return value


def _boolean(value: object) -> object:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def parse_path(value: object) -> Path:
    """Read a path; `~` at its start is a home directory. The parser makes it absolute."""
    found = _text(value)
    if "\0" in found:
        raise ValueError("must not contain a NUL character")
    try:
        return Path(found).expanduser()
    except RuntimeError:
        raise ValueError(
            'begins with ~, and this home directory is not known; "./~" is for a file of that name'
        ) from None


def _host(value: object) -> str:
    """Read a host name, or a literal address without brackets."""
    if isinstance(value, str):
        literal = value.removeprefix("[").removesuffix("]")
        if is_ip(literal):
            return str(ipaddress.ip_address(literal))
        if is_host(value):
            return value
    raise ValueError("must be a host name or an IP address, without a port")


def _address(value: object) -> Address:
    """Read `host:port`, with brackets around an IPv6 literal."""
    name, colon, digits = value.strip().rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not digits.isascii() or not digits.isdigit():
        raise ValueError("must be host:port")
    if "://" in name:
        raise ValueError(f"must be host:port, without {name.partition('://')[0]}://")
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        raise ValueError("an IPv6 address is written in brackets: [::1]:9092")
    if not name:
        raise ValueError("must be host:port; the host 0.0.0.0 is for all addresses")
    port = int(digits) if len(digits) <= 5 else 0
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"the port must be between 1 and {PORT_MAX}")
    return Address(_host(name), port)


def _network(value: object) -> Network:
    if not isinstance(value, str):
        raise ValueError("must be a network, as 10.0.0.0/8")
    try:
        return ipaddress.ip_network(value.strip())
    except ValueError as error:
        raise ValueError(f"is not a network: {error}") from None


_PARSERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    bool: _boolean,
    int: parse_whole,
    float: lambda value: float(parse_amount(value)),
    Path: parse_path,
    Address: _address,
    Network: _network,
}

# Types of values that several keys have
Port = Annotated[int, Key(range=Meta(ge=1, le=PORT_MAX))]
Rate = Annotated[int, Key(range=Meta(ge=1, le=RATE_MAX), unit="bytes/s")]
Host = Annotated[str, Key(parse=_host)]
Positive = Annotated[float, Key(range=Meta(gt=0, le=RATE_MAX), must="must be greater than 0")]
Share = Annotated[float, Key(range=Meta(gt=0, le=1), must="must be greater than 0 and at most 1")]
Addresses = Annotated[
    tuple[Address, ...], Key(range=Meta(min_length=1), must="must be host:port, or several")
]
Networks = Annotated[
    tuple[Network, ...],
    Key(range=Meta(min_length=1, max_length=1000), must="must be 1 to 1000 networks, as 10.0.0.0/8"),
]


# ----------------------------------------------------------------------------------------------------
# The hooks with which msgspec encodes and decodes a `Config`: `msgspec.msgpack.encode(config, enc_hook=encode_hook)`.


def encode_hook(value: object) -> object:
    """Convert a path, network or mapping of a `Config`, which msgspec does not know, to bytes, text or dict."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    return os.fsencode(value) if isinstance(value, Path) else str(value)  # a path may be no text


def decode_hook(kind: type, value: Any) -> object:
    """Convert bytes or text that `encode_hook` has made back to a path or network."""
    return Path(os.fsdecode(value)) if kind is Path else ipaddress.ip_network(value)
