"""A cluster with ACLs, for tests of missing rights."""

from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # theirs
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.cluster import Cluster, ClusterOptions
from tests.cluster.sasl import SASL_LISTENERS, SASL_PROPERTIES, SASL_USERS
from tests.support.waiting import until

_SLUICE: Final = "User:sluice"
_SECONDS: Final = 30
_MISSING: Final = (
    ("an ACL denies Describe on topic {}", AclOperation.DESCRIBE),
    ("does not exist, and an ACL denies Create", AclOperation.CREATE),
    ("an ACL denies Read on topic {}", AclOperation.READ),
    ("an ACL denies DescribeConfigs on topic {}", AclOperation.DESCRIBE_CONFIGS),
)


def guarded_cluster() -> Cluster:
    """One broker with SASL and ACLs, under which clients without a login may do everything; not started yet."""
    properties = {
        **SASL_PROPERTIES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    return Cluster(
        ClusterOptions(nodes=1, listeners=SASL_LISTENERS, properties=properties, format_arguments=SASL_USERS)
    )


def allow(
    cluster: Cluster,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.PREFIXED,
) -> None:
    """Allow Sluice's own user an operation; by default on everything whose name begins so."""
    binding = AclBinding(kind, name, pattern, _SLUICE, "*", operation, AclPermissionType.ALLOW)
    admin = _admin(cluster)  # named: without it the calls are cancelled
    for done in admin.create_acls([binding]).values():
        done.result(_SECONDS)


def allow_as_named(cluster: Cluster, topic: str, said: Callable[[], str], seconds: float = 60.0) -> None:
    """Allow each right that reading a topic of its own wants, as soon as what is said names it as missing."""
    for problem, operation in _MISSING:
        named = problem.format(topic)
        until(lambda named=named: named in said(), named, seconds)  # type: ignore[misc]  # bound early
        allow(cluster, ResourceType.TOPIC, topic, operation)


def no_longer_allow(cluster: Cluster, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Take back what `allow` gave on everything whose name begins so."""
    prefixed, allowed = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
    wanted = AclBindingFilter(kind, name, prefixed, _SLUICE, "*", operation, allowed)
    admin = _admin(cluster)  # named, as above
    for done in admin.delete_acls([wanted]).values():
        done.result(_SECONDS)


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap()})
