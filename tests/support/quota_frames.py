"""Whole requests of the quota API, as a client's frames."""

from collections.abc import Sequence

from kafka_client import quotas
from protocol.messages.client_quotas import Alteration, Component
from tests.support.own_requests import frame_of


def describe_request(
    components: Sequence[Component], *, strict: bool, correlation_id: int, client_id: str, version: int = 0
) -> bytes:
    """A frame that asks for entities."""
    return frame_of(quotas.describe(components, strict=strict, version=version), client_id, correlation_id)


def alter_request(
    alterations: Sequence[Alteration],
    *,
    validate_only: bool,
    correlation_id: int,
    client_id: str,
    version: int = 0,
) -> bytes:
    """A frame that changes entities."""
    request = quotas.alter(alterations, validate_only=validate_only, version=version)
    return frame_of(request, client_id, correlation_id)
