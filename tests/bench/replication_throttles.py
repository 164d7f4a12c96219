"""Setting replication throttles while something runs: the brokers' own, or Sluice's (`tests.bench.replication`)."""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # theirs

from tests.support.replication_rig import ReplicationRig

MB: Final = 1_000_000
_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_rates(rig: ReplicationRig, front: str, rate: float | None, **more: object) -> None:
    """Set every broker's rates, or take them away; Sluice's hold when it returns, Kafka's within a moment."""
    if front == "kafka":
        _set_broker_configs(rig, rate)
        return
    assert rig.sluice is not None, "this front has a Sluice"
    sluice = rig.sluice
    before = sluice.metric("sluice_reloads_total", result="ok")
    keys: dict[str, object] = {"throttled": "off"}
    if rate is not None:
        keys = {"throttled": "reassignments", "leader_rate": int(rate), "follower_rate": int(rate), **more}
    rig.settings(**keys).write(rig.directory)
    sluice.signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while sluice.metric("sluice_reloads_total", result="ok") <= before:
        if time.monotonic() > deadline:
            raise TimeoutError("Sluice has not read its configuration again")
        time.sleep(0.05)


@contextmanager
def throttled_topics(
    rig: ReplicationRig,
    front: str,
    topics: Mapping[str, tuple[str, str]],
    leader: float | None,
    follower: float | None,
) -> Iterator[None]:
    """Throttle the replicas of these topics (leaders' list, followers' list) for a while."""
    if front == "kafka":
        resources = [
            _resource(ConfigResource.Type.TOPIC.value, topic, dict(zip(_LISTS, texts, strict=True)))
            for topic, texts in topics.items()
        ]
        chosen = {name: rate for name, rate in ((_LEADER_RATE, leader), (_FOLLOWER_RATE, follower)) if rate}
        rates = {name: str(int(rate)) for name, rate in chosen.items()}
        _alter(rig, [*resources, *_of_brokers(rig, rates)])
    else:
        set_rates(
            rig,
            front,
            leader or follower,
            throttled="file",
            leader_throttled_replicas={topic: lists[0] for topic, lists in topics.items()},
            follower_throttled_replicas={topic: lists[1] for topic, lists in topics.items()},
            # A throttle that is never reached stands for none.
            leader_rate=int(leader or 1e12),
            follower_rate=int(follower or 1e12),
        )
    try:
        yield
    finally:
        set_rates(rig, front, None)


def _set_broker_configs(rig: ReplicationRig, rate: float | None) -> None:
    value = None if rate is None else str(int(rate))
    _alter(rig, _of_brokers(rig, dict.fromkeys((_LEADER_RATE, _FOLLOWER_RATE), value)))


def _of_brokers(rig: ReplicationRig, configs: Mapping[str, str | None]) -> list[ConfigResource]:
    return [_resource(ConfigResource.Type.BROKER.value, str(broker), configs) for broker in rig.cluster.nodes]


def _resource(kind: int, name: str, configs: Mapping[str, str | None]) -> ConfigResource:
    """Changes of one topic's or broker's configs; None deletes."""
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    return ConfigResource(ConfigResource.Type(kind), name, incremental_configs=entries)


def _alter(rig: ReplicationRig, resources: Sequence[ConfigResource]) -> None:
    for resource in resources:  # librdkafka takes one broker a call
        for done in rig.admin.incremental_alter_configs([resource]).values():
            done.result(30)
