"""`[replication]`: the throttle of replication between brokers, and the source of its settings (KIP-73).

The keys have the names of Kafka's dynamic configs. A malformed entry of a list is a warning and not an error; the other
entries apply.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from proxy.errors import ConfigError
from quotas.replication.replication_quotas import (
    ReplicaList,
    ReplicationOptions,
    ReplicationPolicy,
    parse_replicas,
)

TOPICS_MAX: Final = 100_000


def _lists(path: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(
            path, 'must be a table of topics: { "topic-a" = "0:1,1:2", "topic-b" = "*" }', value
        )
    if len(value) > TOPICS_MAX:
        raise ConfigError(path, f"there may be at most {TOPICS_MAX} topics", len(value))
    for topic, text in value.items():
        if not isinstance(text, str):
            raise ConfigError(f"{path}.{topic}", 'must be a string: "0:1,1:2" or "*"', text)
    return MappingProxyType(dict(value))


def _no_lists() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """`[replication]`."""

    throttled: str = field(
        default="cluster",
        metadata=key(
            readers.choice("off", "cluster", "file", "reassignments"),
            '"off", "cluster", "file" or "reassignments"',
            live=True,
        ),
    )
    policy: ReplicationPolicy = field(
        default="schedule",
        metadata=key(readers.choice("kip73", "schedule"), '"kip73" or "schedule"', live=True),
    )
    window_samples: int = field(
        default=11, metadata=key(readers.count(2, 3600), "number", unit="windows", live=True)
    )
    window_seconds: int = field(
        default=1, metadata=key(readers.count(1, 3600), "number", unit="seconds", live=True)
    )
    leader_rate: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    follower_rate: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    leader_throttled_replicas: Mapping[str, str] = field(
        default_factory=_no_lists,
        metadata=key(_lists, "table of topic = replicas", live=True, default="none"),
    )
    follower_throttled_replicas: Mapping[str, str] = field(
        default_factory=_no_lists,
        metadata=key(_lists, "table of topic = replicas", live=True, default="none"),
    )

    @property
    def options(self) -> ReplicationOptions:
        """The options of the replication quotas."""
        return ReplicationOptions(
            policy=self.policy, window_samples=self.window_samples, window_seconds=self.window_seconds
        )

    def lists(self) -> tuple[Mapping[str, ReplicaList], Mapping[str, ReplicaList]]:
        """Return the leaders' and the followers' lists."""
        leaders, followers = self.leader_throttled_replicas, self.follower_throttled_replicas
        return (
            {topic: parse_replicas(text)[0] for topic, text in leaders.items()},
            {topic: parse_replicas(text)[0] for topic, text in followers.items()},
        )

    def warnings(self) -> Iterator[str]:
        """Yield warnings about invalid entries of the lists, and about keys without effect."""
        for name in ("leader_throttled_replicas", "follower_throttled_replicas"):
            for topic, text in getattr(self, name).items():
                for problem in parse_replicas(text)[1]:
                    yield f"replication.{name}.{topic}: {problem}; the rest of the list is used"
            if getattr(self, name) and self.throttled != "file":
                yield f'replication.{name}: has no effect with throttled = "{self.throttled}"'
        for name in ("leader_rate", "follower_rate"):
            if getattr(self, name) is not None and self.throttled in ("off", "cluster"):
                yield f'replication.{name}: has no effect with throttled = "{self.throttled}"'
