"""DescribeAcls 1, to find out whether the brokers have an authorizer (KIP-140).

Without one every client may do everything; a broker then responds with SECURITY_DISABLED. With one, Sluice's own user
may have no right to ask, which says as much. ACLs of the cluster are asked for, since these are few.
"""

from typing import Final

from kafka_client.codec import admin, decode, encode
from kafka_client.request import MIB, Request

__all__ = ["SECURITY_DISABLED", "describe_cluster_acls"]

SECURITY_DISABLED: Final = 54
_DESCRIBE_ACLS: Final = 29
_VERSION: Final = 1
_BYTES_MAX: Final = 4 * MIB
_CLUSTER: Final = 4  # the kind of a resource
_ANY: Final = 1


def describe_cluster_acls() -> Request[int]:
    """Return the request; the result is Kafka's error code."""
    asked = admin.DescribeAclsRequest(
        version=_VERSION,
        resource_type_filter=_CLUSTER,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return Request(_DESCRIBE_ACLS, _VERSION, encode(asked), _read, _BYTES_MAX)


def _read(frame: bytes) -> int:
    return int(decode(admin.DescribeAclsResponse, _VERSION, frame).error_code)
