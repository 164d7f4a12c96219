"""Readers of single values: a value of TOML or the environment -> the option's value, or a ConfigError.

A string with a number is read as the number, since environment variables are strings. Several keys together are checked
in `proxy.config.checks`.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from proxy.system.errors import ConfigError
from proxy.system.hosts import is_host, is_ip
from quotas.definitions.amounts import parse_amount, parse_whole
from quotas.errors import AmountError

PORT_MAX: Final = 65535
BROKER_ID_MAX: Final = 2**31 - 1  # Kafka's broker ids are INT32
RATE_MAX: Final = 2**63 - 1  # Kafka's own "unlimited" for producer_byte_rate and consumer_byte_rate
NETWORKS_MAX: Final = 1000
CLIENT_ID_CHARACTERS_MAX: Final = 32767  # a STRING's length is an INT16

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Address(NamedTuple):
    """A host (name or literal, IPv6 without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def text(path: str, value: object) -> str:
    """Read a non-empty string."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(path, "must be a string that is not empty", value)
    return value


def optional_text(path: str, value: object) -> str:
    """Read a string, or the empty one for none."""
    return "" if value == "" else text(path, value)


def secret(path: str, value: object) -> str:
    """Read a secret string, which no message ever shows."""
    if not isinstance(value, str) or not value:
        raise ConfigError(path, "must be a string that is not empty")
    return value


def boolean(path: str, value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ConfigError(path, "must be true or false", value)


def choice(*names: str, unbuilt: Mapping[str, str] = MappingProxyType({})) -> Callable[[str, object], str]:
    """Make a reader of one of these names; `unbuilt`: names that are not supported yet, with their messages."""

    def read(path: str, value: object) -> str:
        if isinstance(value, str):
            if value in names:
                return value
            if value in unbuilt:
                raise ConfigError(path, unbuilt[value], value)
        raise ConfigError(path, "must be " + " or ".join(f'"{name}"' for name in names), value)

    return read


def count(low: int, high: int) -> Callable[[str, object], int]:
    """Make a reader of a whole number between two bounds, units allowed."""

    def read(path: str, value: object) -> int:
        try:
            found = parse_whole(value)
        except AmountError as error:
            raise ConfigError(path, str(error), value) from None
        if not low <= found <= high:
            raise ConfigError(path, f"must be between {low} and {high}", value)
        return found

    return read


def seconds(low: float, high: float) -> Callable[[str, object], float]:
    """Make a reader of a time in seconds, parts of a second allowed."""

    def read(path: str, value: object) -> float:
        try:
            found = parse_amount(value)
        except AmountError as error:
            raise ConfigError(path, str(error), value) from None
        if not Decimal(str(low)) <= found <= Decimal(str(high)):
            raise ConfigError(path, f"must be between {low:g} and {high:g} seconds", value)
        return float(found)

    return read


def positive(path: str, value: object) -> float:
    """Read a number above 0, parts of one allowed: a rate may be one in ten minutes."""
    try:
        found = parse_amount(value)
    except AmountError as error:
        raise ConfigError(path, str(error), value) from None
    if not 0 < found <= RATE_MAX:
        raise ConfigError(path, "must be greater than 0", value)
    return float(found)


def share(path: str, value: object) -> float:
    """Read a share: above 0, and 1 for all."""
    try:
        found = parse_amount(value)
    except AmountError as error:
        raise ConfigError(path, str(error), value) from None
    if not 0 < found <= 1:
        raise ConfigError(path, "must be greater than 0 and at most 1", value)
    return float(found)


port: Final = count(1, PORT_MAX)
rate: Final = count(1, RATE_MAX)


def host(path: str, value: object) -> str:
    """Read a host name, or a literal address without brackets."""
    if isinstance(value, str):
        literal = value.removeprefix("[").removesuffix("]")
        if is_ip(literal):
            return str(ipaddress.ip_address(literal))
        if is_host(value):
            return value
    raise ConfigError(path, "must be a host name or an IP address, without a port", value)


def hosts(path: str, value: object) -> tuple[str, ...]:
    """Read hosts: a list, or one text with commas; none is allowed."""
    parts: list[object] = list(value.split(",")) if isinstance(value, str) and value else []
    if isinstance(value, list):
        parts = value
    elif value != "" and not parts:
        raise ConfigError(path, "must be a list of host names", value)
    return tuple(host(path, part.strip() if isinstance(part, str) else part) for part in parts)


def address(path: str, value: object) -> Address:
    """Read `host:port`, with brackets around an IPv6 literal."""
    if not isinstance(value, str):
        raise ConfigError(path, "must be host:port", value)
    name, colon, digits = value.strip().rpartition(":")
    if not colon or not digits.isascii() or not digits.isdigit():
        raise ConfigError(path, "must be host:port", value)
    if "://" in name:
        raise ConfigError(path, f"must be host:port, without {name.partition('://')[0]}://", value)
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        raise ConfigError(path, "an IPv6 address is written in brackets: [::1]:9092", value)
    if not name:
        raise ConfigError(path, "must be host:port; the host 0.0.0.0 is for all addresses", value)
    number = int(digits) if len(digits) <= 5 else 0
    if not 1 <= number <= PORT_MAX:
        raise ConfigError(path, f"the port must be between 1 and {PORT_MAX}", value)
    try:
        return Address(host(path, name), number)
    except ConfigError as error:
        raise ConfigError(path, error.problem, value) from None


def optional_address(path: str, value: object) -> Address | None:
    """Read `host:port`, or the empty text for none."""
    return None if value == "" else address(path, value)


def addresses(path: str, value: object) -> tuple[Address, ...]:
    """Read one or more `host:port`: a list, or one text with commas as Kafka's clients take it."""
    parts: list[object] = list(value.split(",")) if isinstance(value, str) else []
    if isinstance(value, list):
        parts = value
    if not parts or value == "":
        raise ConfigError(path, "must be host:port, or several", value)
    return tuple(
        address(path if isinstance(value, str) else f"{path}[{i}]", part) for i, part in enumerate(parts)
    )


def networks(path: str, value: object) -> tuple[Network, ...]:
    """Read networks, `10.0.0.0/8`, or single addresses: a list, or one text with commas."""
    parts: list[object] = list(value.split(",")) if isinstance(value, str) else []
    if isinstance(value, list):
        parts = value
    if not 1 <= len(parts) <= NETWORKS_MAX:
        raise ConfigError(path, f"must be 1 to {NETWORKS_MAX} networks, as 10.0.0.0/8", value)
    return tuple(_network(path, part) for part in parts)


def optional_networks(path: str, value: object) -> tuple[Network, ...]:
    """Read networks, or the empty text for none."""
    return () if value == "" else networks(path, value)


def _network(path: str, value: object) -> Network:
    if isinstance(value, str):
        try:
            return ipaddress.ip_network(value.strip())
        except ValueError as error:
            raise ConfigError(path, f"is not a network: {error}", value) from None
    raise ConfigError(path, "must be a network, as 10.0.0.0/8", value)


def upstreams(path: str, value: object) -> Mapping[int, Address]:
    """Read the brokers behind a sidecar: broker id -> host:port."""
    if not isinstance(value, dict):
        raise ConfigError(path, 'must be a table of broker ids: { 1 = "127.0.0.1:29391" }', value)
    read_id = count(0, BROKER_ID_MAX)
    found: dict[int, Address] = {}
    for name, where in value.items():
        broker = read_id(f"{path}.{name}", str(name))
        found[broker] = address(f"{path}.{name}", where)
    return MappingProxyType(dict(sorted(found.items())))


def file_path(path: str, value: object) -> Path:
    """Read a path; `~` at its start is a home directory.

    The parser makes it absolute, relative to the configuration file.
    """
    found = text(path, value)
    if "\0" in found:
        raise ConfigError(path, "must not contain a NUL character", value)
    try:
        return Path(found).expanduser()
    except RuntimeError:
        problem = 'begins with ~, and this home directory is not known; "./~" is for a file of that name'
        raise ConfigError(path, problem, value) from None


def optional_file_path(path: str, value: object) -> Path | None:
    """Read a path, or the empty text for none."""
    return None if value == "" else file_path(path, value)


def principals(path: str, value: object) -> tuple[str, ...]:
    """Read principals' names: a list, or one string with commas; "*" is any principal."""
    parts: list[object] = list(value.split(",")) if isinstance(value, str) and value else []
    if isinstance(value, list):
        parts = value
    elif value != "" and not parts:
        raise ConfigError(path, "must be a list of principals' names", value)
    return tuple(text(f"{path}[{index}]", part).strip() for index, part in enumerate(parts))


def client_rates(path: str, value: object) -> Mapping[str, int]:
    """Read KIP-13's static overrides: `clientA:4M,clientB:10M`, in bytes/s.

    The last colon divides, so a client id may hold colons. It cannot hold a comma here: the quotas file can.
    """
    if not isinstance(value, str):
        raise ConfigError(path, 'must be a string of client ids and rates: "clientA:4M,clientB:10M"', value)
    found: dict[str, int] = {}
    for part in value.split(",") if value.strip() else ():
        client_id, colon, digits = part.strip().rpartition(":")
        if not colon or not client_id or len(client_id) > CLIENT_ID_CHARACTERS_MAX:
            raise ConfigError(
                path, f"{part.strip()!r} is not client id, colon and rate, as clientA:4M", value
            )
        if client_id in found:
            raise ConfigError(path, f"client id {client_id!r} is given twice", value)
        found[client_id] = rate(f"{path}[{client_id}]", digits)
    return MappingProxyType(found)


# ----------------------------------------------------------------------------------------------------
# The description of one configuration key, stored in the metadata of its field.
#
# Each field of the option classes has a `Key` in its metadata. The parser, the comparison at a reload, and
# the test of
# docs/configuration.md use this one description.


Reader = Callable[[str, object], object]
"""(Key path, value of TOML or the environment) -> the option's value, or ConfigError."""

METADATA: Final = "sluice.key"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration.

    Args:
        read: the reader of its value.
        kind: its type, in a word or two of the documentation.
        unit: what a bare number counts; empty where there is none.
        live: True when a changed value applies at reload, False when it needs a restart.
        default: how the documentation writes the default, where the field's own default does not tell.
    """

    read: Reader
    kind: str
    unit: str = ""
    live: bool = False
    default: str = ""


def key(
    read: Reader, kind: str, *, unit: str = "", live: bool = False, default: str = ""
) -> Mapping[str, object]:
    """Create the metadata of one option's field."""
    return {METADATA: Key(read, kind, unit, live, default)}


def key_of(field: Field[object]) -> Key | None:
    """Return the key of this field; None if it has none."""
    found = field.metadata.get(METADATA)
    return found if isinstance(found, Key) else None


# ----------------------------------------------------------------------------------------------------
# One TOML table -> one option class: each key belongs to a field; an unknown key is an error with a
# suggestion.
#
# `readers` read single values; `proxy.config.parser` knows the tables.


T = TypeVar("T")

_SECRETS: Final = ("password", "sasl_password", "key_password", "secret")


def build(
    make: Callable[..., T],
    known: Sequence[Field[object]],
    path: str,
    table: Mapping[str, object],
    refused: Mapping[str, str],
) -> T:
    """Read a table's values and create the options.

    Args:
        make: the option class.
        known: its fields.
        path: of the table, for errors.
        table: what TOML or the environment holds.
        refused: keys that are not supported here, and why.

    Raises:
        ConfigError: the first key that is unknown or wrong.
    """
    keys = {field.name: found for field in known if (found := key_of(field)) is not None}
    refuse_unknown(table, tuple(keys), path, refused)
    return make(**{name: keys[name].read(f"{path}.{name}", value) for name, value in table.items()})


def refuse_unknown(
    table: Mapping[str, object], known: Sequence[str], path: str, refused: Mapping[str, str]
) -> None:
    """Raise ConfigError for the first unknown key."""
    for name, value in table.items():
        if name in known:
            continue
        where = f"{path}.{name}" if path else name
        shown = None if get_close_matches(name, _SECRETS) else value  # a misspelt password is a password
        if name in refused:
            raise ConfigError(where, f"{refused[name]}: leave it out", shown)
        is_table = isinstance(value, Mapping) or _is_tables(value)
        noun = "table" if is_table else "key"
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known {noun}s: {', '.join(known)}"
        raise ConfigError(where, f"unknown {noun}{hint}", None if is_table else shown)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
