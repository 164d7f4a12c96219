"""Keys that are valid and have no effect, or probably another one than intended: one warning for each. Pure.

A configuration that cannot work is an error (`checks`); paths that cannot be written to are found by `disk`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from commandline.amounts import count
from proxy.config.options import Config
from proxy.config.quota_options import QuotaSettings
from proxy.config.replication_options import ReplicationSettings
from quotas.definitions.alterations import text_of
from quotas.definitions.definitions import BYTE_RATES
from quotas.definitions.entities import Entity, ip_name

_PATTERN: Final = "*"
_TYPE: Final = "User:"
_BRACKETS: Final = "<>\"' "
_EVERY_OTHER: Final = 'every name without an entry of its own is "<default>"'
_BYTES_MIN: Final = 1000  # bytes/s: the headers of a client's requests alone are about as much
_WAIT_SECONDS_MAX: Final = 300.0  # more is probably meant as milliseconds


def without_effect(config: Config) -> Iterator[str]:
    """Yield warnings about keys without effect, or with another effect than their name suggests."""
    if not config.replicates and config.replication != ReplicationSettings():
        yield 'replication: has no effect without a listener of kind "replication"'
    beside = any(listener.sidecar and not listener.replicates for listener in config.listeners)
    if config.replicates and beside and config.replication.throttled == "cluster":
        yield (
            'replication.throttled: with "cluster" and a sidecar of clients in the same process, only the rates of its '
            "own broker are known, so followers at other brokers are not limited: use a process of its own for the "
            "replication listener"
        )
    clients = [listener for listener in config.listeners if not listener.replicates]
    before = {broker for listener in clients for broker in listener.upstreams}
    alone = all(listener.sidecar for listener in clients) and len(before) == 1 and not config.fleet.configured
    if config.quotas.scope == "cluster" and alone:
        yield (
            'quotas.scope: "cluster" without [fleet] is the one broker behind this sidecar: each sidecar gives a '
            "client its whole budget"
        )
    if config.fleet.cluster is not None and not config.fleet.has_group and not config.keeps_topics:
        yield 'fleet.bootstrap: has no effect without a group (fleet.bind and no fleet.holder) or store = "topic"'
    yield from _quota_warnings(config.quotas)
    for name in ("leader_rate", "follower_rate"):
        rate = getattr(config.replication, name)
        problem = "" if rate is None else _value_problem("producer_byte_rate", rate)
        if problem:
            yield f"replication.{name}: {rate} {problem}"


def limit_warnings(entity: Entity, values: Mapping[str, float]) -> Iterator[str]:
    """Yield what is probably a mistake in one `[[quota]]` table: its names, and limits that let nearly nothing pass."""
    for part, name in zip(Entity._fields, entity, strict=True):
        if isinstance(name, str):
            problem = _name_problem(part, name)
            if problem:
                yield f"quota of {part.replace('_', ' ')} {name!r}{problem}"
    for key, value in values.items():
        problem = _value_problem(key, value)
        if problem:
            yield f"quota of {text_of(entity).replace('client-id', 'client id')}: {key} = {value:g} {problem}"


def _name_problem(part: str, name: str) -> str:
    """Return what is probably wrong with a name, with the text between them; "" if nothing is."""
    if part == "ip":
        return "" if ip_name(name) else " has no effect: it is no IP address"
    if _is_pattern(name):
        return f": {_literal(name)}"
    if part == "user" and name.startswith(_TYPE):
        return f": {_typed(name)}"
    if name.strip(_BRACKETS).lower() == "default":
        return f": it is this name letter by letter; {_EVERY_OTHER}"
    if name != name.strip():
        return f": a blank at an end is a part of the name; without it: {name.strip()!r}"
    if part in ("client_id", "topic") and "," in name:
        return ": a comma is a part of the name; several names are several [[quota]] tables"
    return ""


def _value_problem(key: str, value: float) -> str:
    """Return what is probably wrong with a limit, as the end of a sentence; "" if nothing is."""
    if key in BYTE_RATES and value < _BYTES_MIN:
        return (
            f"is {count(round(value), 'byte')} a second, less than one request: "
            f'with a unit it is "{value:g}k" or "{value:g}M"'
        )
    if key == "request_percentage" and value < 1:
        return f"is in percent, and of one thread: a share of {value:g} is {value * 100:g}"
    return ""


def _quota_warnings(quotas: QuotaSettings) -> Iterator[str]:
    for name in ("hold_seconds_max", "mute_seconds_max"):
        value = getattr(quotas, name)
        if value > _WAIT_SECONDS_MAX:
            yield f"quotas.{name}: counts seconds: {value:g} are {value / 60:.0f} minutes; no client waits so long"
    if quotas.hold_seconds_max > quotas.mute_seconds_max:
        yield (
            f"quotas.hold_seconds_max: {quotas.hold_seconds_max:g} s is longer than quotas.mute_seconds_max, "
            f"{quotas.mute_seconds_max:g} s: both have to stay below the clients' request.timeout.ms, so clients "
            "have to bear the longer one"
        )
    yield from _principals("alter_principals", quotas.alter_principals)
    yield from _principals("describe_principals", quotas.describe_principals)
    for side in ("producer", "consumer"):
        yield from _static(f"{side}_default", {"": getattr(quotas, f"{side}_default")})
        yield from _static(f"{side}_override", getattr(quotas, f"{side}_override"))


def _principals(key: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name.startswith(_TYPE):
            yield f"quotas.{key}: {name!r}: {_typed(name)}"
        elif name != _PATTERN and _is_pattern(name):
            yield f"quotas.{key}: {name!r}: {_literal(name)}"


def _static(key: str, rates: Mapping[str, int | None]) -> Iterator[str]:
    """Yield warnings about a static setting of KIP-13: rates by client id, "" for the default."""
    for name, rate in rates.items():
        problem = _name_problem("client_id", name)
        if problem:
            yield f"quotas.{key}: {name!r}{problem}"
        problem = "" if rate is None else _value_problem("producer_byte_rate", rate)
        if problem:
            yield f"quotas.{key}: {name + ':' if name else ''}{rate} {problem}"


def _is_pattern(name: str) -> bool:
    return _PATTERN in name or "?" in name or name.startswith("^")


def _literal(name: str) -> str:
    meant = f"; {_EVERY_OTHER}" if name == _PATTERN else ": write each name"
    return f"there are no patterns, as in Kafka: it is this name letter by letter{meant}"


def _typed(name: str) -> str:
    return f"users are named without their principal's type: {name.removeprefix(_TYPE)!r}"
