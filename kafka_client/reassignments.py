"""ListPartitionReassignments and AlterPartitionReassignments, sent by Sluice itself (KIP-455).

The messages are encoded and decoded in `protocol`, since Sluice also handles them for clients.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from kafka_client.request import MIB, Request
from protocol.api import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from protocol.messages import alter_reassignments, reassignments
from protocol.messages.alter_reassignments import AlterRequest, AlterResponse, Target
from protocol.messages.reassignments import Reassignments, Stepping

__all__ = ["alter", "list_batches", "list_ongoing"]

Partition = tuple[str, int]

_ALTER: Final = alter_reassignments.VERSION
_LIST_BYTES_MAX: Final = 8 * MIB
_ALTER_BYTES_MAX: Final = 4 * MIB


def list_ongoing() -> Request[Reassignments]:
    """Return the request for all reassignments under way."""
    version = reassignments.VERSION
    return Request(
        LIST_PARTITION_REASSIGNMENTS,
        version,
        reassignments.EVERYTHING,
        reassignments.read_response,
        _LIST_BYTES_MAX,
    )


def list_batches() -> Request[tuple[Reassignments, Mapping[Partition, Stepping]]]:
    """Return the request, to a Sluice proxy, for all reassignments and their current steps (KIP-435)."""
    version = reassignments.BATCH_VERSION
    return Request(
        LIST_PARTITION_REASSIGNMENTS,
        version,
        reassignments.EVERYTHING,
        reassignments.read_batch,
        _LIST_BYTES_MAX,
    )


def alter(targets: Mapping[Partition, Target], timeout_ms: int) -> Request[AlterResponse]:
    """Return the request that reassigns partitions, or cancels their reassignments (None)."""
    body = alter_reassignments.request_body(AlterRequest(timeout_ms, True, list(targets.items())), _ALTER)
    read = partial(alter_reassignments.read_response, version=_ALTER)
    return Request(ALTER_PARTITION_REASSIGNMENTS, _ALTER, body, read, _ALTER_BYTES_MAX)
