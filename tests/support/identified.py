"""Clients that say which broker they mean (KIP-1242)."""

from contextlib import suppress
from typing import Final

from protocol.api import API_VERSIONS
from protocol.messages.api_versions import error_code, identifying_body
from tests.cluster import Address
from tests.support.frames import request
from tests.support.wire import wired

REBOOTSTRAP_REQUIRED: Final = 129
CLOSED: Final = None


def told(address: Address, cluster_id: str, node_id: int, version: int = 5) -> int | None:
    """The error code that a client gets which means this node of this cluster; CLOSED if it gets none."""
    with wired(address) as wire:
        wire.send_bytes(request(API_VERSIONS, version, identifying_body("4.4.0", cluster_id, node_id)))
        with suppress(ConnectionError):
            return error_code(wire.receive())
    return CLOSED
