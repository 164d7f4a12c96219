"""The rule that makes a client wait: a kind of quota, the entity whose limit applies, and its value."""

from typing import Final, NamedTuple

from proxy.channel import Muting, ReplicaThrottle
from quotas.definitions.alterations import text_of
from quotas.definitions.definitions import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    Definitions,
    match,
)
from quotas.definitions.entities import DEFAULT, Entity
from quotas.throttles.connections import UserThrottle
from quotas.throttles.kinds import CONNECTION, KINDS, TOPIC
from quotas.throttles.topic_quotas import TopicThrottle

REPLICATION: Final = "replication"


class Rule(NamedTuple):
    """A quota that a client was throttled for; its entity follows from the definitions in force.

    Args:
        kind: produce, fetch, request, mutation, topic, connection or replication.
        key: the quota key.
        name: the topic, the user whose connections are counted, or the id of the throttled broker; else "".
        limit: for replication, the limit when it throttled, since no entry has it.
    """

    kind: str
    key: str
    name: str = ""
    limit: float | None = None


class InForce(NamedTuple):
    """A rule with the entity and value in force for one client.

    Args:
        entity: None for replication, and for the limit of all clients' partition mutations, which is a setting.
        value: the limit, in the key's unit.
        setting: the setting that has the limit, "" if an entry has it.
    """

    rule: Rule
    entity: Entity | None
    value: float
    setting: str = ""


def rule_of(throttle: Muting | ReplicaThrottle) -> Rule:
    """Return the rule of a throttle that has muted a channel, or left replicas out."""
    if isinstance(throttle, ReplicaThrottle):
        key = f"{throttle.side}.replication.throttled.rate"
        return Rule(REPLICATION, key, str(throttle.broker), throttle.limit)
    if isinstance(throttle, TopicThrottle):
        return Rule(TOPIC, throttle.key, throttle.topic)
    if isinstance(throttle, UserThrottle):
        return Rule(CONNECTION, CONNECTION_CREATION_RATE, throttle.user)
    return Rule(KINDS[throttle.key], throttle.key)


def in_force(
    rule: Rule, definitions: Definitions, user: str, client_id: str, mutations_rate: float | None = None
) -> InForce | None:
    """Return the entity and value that a rule has for a client now; None if the limit is gone.

    Args:
        mutations_rate: `quotas.partition_mutations_rate`, the limit of all clients together.
    """
    if rule.kind == REPLICATION:
        return None if rule.limit is None else InForce(rule, None, rule.limit)
    if rule.kind == TOPIC:
        own = Entity(topic=rule.name)
        value = definitions.topic_limit(rule.key, rule.name)
        entity = own if definitions.names_topic(rule.key, rule.name) else Entity(topic=DEFAULT)
        return None if value is None else InForce(rule, entity, value)
    if rule.kind == CONNECTION:
        value = definitions.user_connection_rate(rule.name)
        entity = Entity(rule.name)
        if value is not None and rule.key not in definitions.values(entity):
            entity = Entity(DEFAULT)
        return None if value is None else InForce(rule, entity, value)
    found = match(definitions, rule.key, user, client_id)
    if found is not None and found.value is not None:
        return InForce(rule, found.entity, found.value, found.static)
    if rule.key == CONTROLLER_MUTATION_RATE and mutations_rate is not None:
        return InForce(rule, None, mutations_rate, "partition_mutations_rate")
    return None


def entity_text(found: InForce) -> str:
    """Return the entity of a rule as text for people."""
    if found.rule.kind == REPLICATION:
        return f"broker {found.rule.name} as a {found.rule.key.partition('.')[0]}"
    return "all clients together" if found.entity is None else text_of(found.entity)
