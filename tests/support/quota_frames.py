"""Whole requests of the quota API, as a client's frames."""

from collections.abc import Sequence

from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, flexible
from protocol.header import REQUEST_HEAD
from protocol.messages.client_quotas import Alteration, Component
from protocol.messages.client_quotas_calls import alter_body, describe_body

__all__ = ["alter_request", "describe_request"]


def describe_request(
    components: Sequence[Component], *, strict: bool, correlation_id: int, client_id: str, version: int = 0
) -> bytes:
    """A frame that asks for entities."""
    body = describe_body(components, strict=strict, version=version)
    return _frame(DESCRIBE_CLIENT_QUOTAS, version, correlation_id, client_id, body)


def alter_request(
    alterations: Sequence[Alteration],
    *,
    validate_only: bool,
    correlation_id: int,
    client_id: str,
    version: int = 0,
) -> bytes:
    """A frame that changes entities."""
    body = alter_body(alterations, validate_only=validate_only, version=version)
    return _frame(ALTER_CLIENT_QUOTAS, version, correlation_id, client_id, body)


def _frame(key: int, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    name = client_id.encode()
    rest = name + (b"\0" if flexible(key, version) else b"") + body
    return (
        REQUEST_HEAD.pack(REQUEST_HEAD.size - 4 + len(rest), key, version, correlation_id, len(name)) + rest
    )
