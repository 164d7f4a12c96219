"""`[quotas]`: how client quotas are measured and enforced, and where they are defined."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from quotas.options import Mode, NewConnections, Policy, Scope, UnknownUsers

DAY_SECONDS: Final = 86400
OLD_SCOPE: Final = "gateway"  # how scope "cluster" was called


def _scope(path: str, value: object) -> str:
    return readers.choice("broker", "cluster")(path, "cluster" if value == OLD_SCOPE else value)


def _no_rates() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """`[quotas]`: how client quotas are measured and enforced, and where they are defined."""

    file: Path | None = field(
        default=None,
        metadata=key(
            readers.optional_file_path, "path", live=True, default="none: nothing but static settings"
        ),
    )
    store: str = field(
        default="file",
        metadata=key(readers.choice("file", "topic", "cluster"), '"file", "topic" or "cluster"'),
    )
    topic: str = field(default="__sluice-quotas", metadata=key(readers.text, "topic"))
    audit_topic: str = field(
        default="__sluice-audit", metadata=key(readers.optional_text, 'topic, or "" for none')
    )
    audit_retention_seconds: int | None = field(
        default=None,
        metadata=key(readers.count(60, 2**31), "number", unit="seconds", default="the brokers' default"),
    )
    alter_principals: tuple[str, ...] = field(
        default=(), metadata=key(readers.principals, "name, or several", live=True, default="none")
    )
    describe_principals: tuple[str, ...] = field(
        default=("*",),
        metadata=key(readers.principals, "name, or several", live=True, default='"*": every principal'),
    )
    policy: Policy = field(
        default="schedule",
        metadata=key(readers.choice("schedule", "kip13"), '"schedule" or "kip13"', live=True),
    )
    mode: Mode = field(
        default="enforce",
        metadata=key(
            readers.choice("enforce", "observe"),
            '"enforce" or "observe"',
            live=True,
            default='`"enforce"`; `"observe"` with `store = "cluster"`',
        ),
    )
    scope: Scope = field(
        default="broker",
        metadata=key(
            _scope,
            '"broker" or "cluster"',
            default='`"cluster"` of a gateway; `"broker"` of sidecars, and with `store = "cluster"`',
        ),
    )
    window_samples: int = field(
        default=11, metadata=key(readers.count(2, 3600), "number", unit="windows", live=True)
    )
    window_seconds: int = field(
        default=1, metadata=key(readers.count(1, 3600), "number", unit="seconds", live=True)
    )
    burst_seconds: float = field(
        default=1.0, metadata=key(readers.seconds(0, 3600), "number", unit="seconds of quota", live=True)
    )
    hold_seconds_max: float = field(
        default=15.0,  # below the request timeouts that clients come with
        metadata=key(
            readers.seconds(0, 3600),
            "number",
            unit="seconds",
            live=True,
            default="15 in `schedule`; always 0 in `kip13`",
        ),
    )
    mute_seconds_max: float = field(
        default=20.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds", live=True)
    )
    new_connections: NewConnections = field(
        default="held",
        metadata=key(readers.choice("held", "as-kafka"), '"held" or "as-kafka"', live=True),
    )
    partition_mutations_rate: float | None = field(
        default=None,
        metadata=key(readers.positive, "number", unit="partitions/s", live=True, default="unlimited"),
    )
    partition_mutations_burst: float | None = field(
        default=None,
        metadata=key(
            readers.positive, "number", unit="partitions", live=True, default="the rate times all windows"
        ),
    )
    charge_validate_only: bool = field(
        default=True, metadata=key(readers.boolean, "true or false", live=True)
    )
    charge_auto_created: bool = field(default=True, metadata=key(readers.boolean, "true or false", live=True))
    unknown_users: UnknownUsers = field(
        default="none",
        metadata=key(readers.choice("none", "default", "refuse"), '"none", "default" or "refuse"', live=True),
    )
    producer_default: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    producer_override: Mapping[str, int] = field(
        default_factory=_no_rates,
        metadata=key(readers.client_rates, "client:rate, …", unit="bytes/s", live=True, default="none"),
    )
    consumer_default: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    consumer_override: Mapping[str, int] = field(
        default_factory=_no_rates,
        metadata=key(readers.client_rates, "client:rate, …", unit="bytes/s", live=True, default="none"),
    )
