"""A cluster with ACLs, for tests of missing rights."""

from tests.cluster import Cluster, ClusterOptions
from tests.cluster.sasl import SASL_LISTENERS, SASL_PROPERTIES, SASL_USERS

__all__ = ["guarded_cluster"]


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
