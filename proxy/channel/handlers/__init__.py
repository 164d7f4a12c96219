"""Handlers for the few APIs that are not just forwarded; one module per family, independent of each other.

A request handler is called with (direction, buf, pos, end, body, head, now_ms): the frame starts at `pos`, its client
id ends at `body`, and `head` is the unpacked header. It returns 0 to forward the frame, after it has put the owed
response into `in_flight`, or an order of its direction. `proxy.channel.direction` describes owed responses.

Non-obvious:

- Unknown API keys close the connection in a gateway: their responses may hold addresses. Unknown versions of APIs
  without addresses pass.
"""

from collections.abc import Callable
from typing import Final

from protocol import api
from protocol.api import DESCRIBE_CONFIGS
from protocol.header import RequestHead
from proxy.channel.direction import Buffer, ChannelDirection
from proxy.channel.handlers import (
    addresses,
    client_quotas,
    fetch,
    groups,
    produce,
    reassignments,
    sasl,
    share,
    telemetry,
    topic_mutations,
)

__all__ = ["REQUEST_HANDLERS"]

RequestHandler = Callable[[ChannelDirection, Buffer, int, int, int, RequestHead, int], int]

REQUEST_HANDLERS: Final[dict[int, RequestHandler]] = {
    api.PRODUCE: produce.request,
    api.FETCH: fetch.request,
    api.METADATA: addresses.metadata_request,
    api.FIND_COORDINATOR: addresses.rewritten_request,
    api.DESCRIBE_CLUSTER: addresses.rewritten_request,
    DESCRIBE_CONFIGS: addresses.configs_request,
    api.DESCRIBE_QUORUM: addresses.rewritten_request,
    api.API_VERSIONS: addresses.api_versions_request,
    api.SHARE_FETCH: share.fetch_request,
    api.SHARE_ACKNOWLEDGE: share.acknowledge_request,
    api.CREATE_TOPICS: topic_mutations.request,
    api.CREATE_PARTITIONS: topic_mutations.request,
    api.DELETE_TOPICS: topic_mutations.request,
    api.DESCRIBE_CLIENT_QUOTAS: client_quotas.request,
    api.ALTER_CLIENT_QUOTAS: client_quotas.request,
    api.ALTER_PARTITION_REASSIGNMENTS: reassignments.alter_request,
    api.LIST_PARTITION_REASSIGNMENTS: reassignments.list_request,
    api.JOIN_GROUP: groups.request,
    api.HEARTBEAT: groups.request,
    api.SYNC_GROUP: groups.request,
    api.CONSUMER_GROUP_HEARTBEAT: groups.request,
    api.SHARE_GROUP_HEARTBEAT: groups.request,
    api.PUSH_TELEMETRY: telemetry.request,
    api.STREAMS_GROUP_HEARTBEAT: topic_mutations.streams_request,
    api.SASL_HANDSHAKE: sasl.handshake_request,
    api.SASL_AUTHENTICATE: sasl.authenticate_request,
}
