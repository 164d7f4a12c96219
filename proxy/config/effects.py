"""Keys that are valid and have no effect, or probably another one than intended: one warning for each. Pure.

A configuration that cannot work is an error (`checks`); paths that cannot be written to are found by `disk`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proxy.config.options import Config
from proxy.config.quota_options import QuotaSettings
from proxy.config.replication_options import ReplicationSettings
from quotas.definitions.entities import DEFAULT, Entity, ip_name

__all__ = ["entity_warning", "without_effect"]

_PATTERN: Final = "*"
_TYPE: Final = "User:"


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


def entity_warning(entity: Entity) -> str:
    """Return the problem of an entity's name; "" if it has none."""
    if isinstance(entity.ip, str) and ip_name(entity.ip) is None:
        return f"quota of ip {entity.ip!r} has no effect: it is no IP address"
    for part in ("client_id", "user", "topic"):
        name = getattr(entity, part)
        if name is not DEFAULT and name is not None and _PATTERN in name:
            return f"quota of {part.replace('_', ' ')} {name!r}: {_literal(name)}"
    if isinstance(entity.user, str) and entity.user.startswith(_TYPE):
        return f"quota of user {entity.user!r}: {_typed(entity.user)}"
    return ""


def _quota_warnings(quotas: QuotaSettings) -> Iterator[str]:
    if quotas.hold_seconds_max > quotas.mute_seconds_max:
        yield (
            f"quotas.hold_seconds_max: {quotas.hold_seconds_max:g} s is longer than quotas.mute_seconds_max, "
            f"{quotas.mute_seconds_max:g} s: both have to stay below the clients' request.timeout.ms, so clients "
            "have to bear the longer one"
        )
    yield from _principals("alter_principals", quotas.alter_principals)
    yield from _principals("describe_principals", quotas.describe_principals)
    yield from _overrides("producer_override", quotas.producer_override)
    yield from _overrides("consumer_override", quotas.consumer_override)


def _principals(key: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name.startswith(_TYPE):
            yield f"quotas.{key}: {name!r}: {_typed(name)}"
        elif name != _PATTERN and _PATTERN in name:
            yield f"quotas.{key}: {name!r}: {_literal(name)}"


def _overrides(key: str, rates: Mapping[str, int]) -> Iterator[str]:
    for name in rates:
        if _PATTERN in name:
            yield f"quotas.{key}: {name!r}: {_literal(name)}"


def _literal(name: str) -> str:
    meant = '; every name without an entry of its own is "<default>"' if name == _PATTERN else ""
    return f"there are no patterns, as in Kafka: it is this name letter by letter{meant}"


def _typed(name: str) -> str:
    return f"users are named without their principal's type: {name.removeprefix(_TYPE)!r}"
