"""The quota API by raw frames: what no admin client lets a test do, and faster than a JVM starts."""

import socket
import struct
from collections.abc import Sequence

from kafka_client import quotas
from kafka_client.quotas import QuotaEntities
from protocol.messages.client_quotas import Alteration, Component, Parts
from tests.support.quota_frames import alter_request, describe_request

_SECONDS_MAX = 60.0


def alter(
    bootstrap: str, *alterations: Alteration, validate_only: bool = False
) -> list[tuple[Parts, int, str]]:
    """Send one AlterClientQuotas; each entity's error code and message."""
    frame = alter_request(
        alterations, validate_only=validate_only, correlation_id=5, client_id="quota-client"
    )
    results = quotas.alter([], validate_only=False).read(_ask(bootstrap, frame))
    return [(parts, code, message or "") for parts, code, message in results]


def set_rates(bootstrap: str, **rates: float | None) -> list[tuple[int, str]]:
    """Set producer_byte_rate of client ids, None to remove it; error codes and messages in the same order."""
    alterations: list[Alteration] = [
        ([("client-id", name)], [("producer_byte_rate", rate)]) for name, rate in rates.items()
    ]
    return [(code, message) for _, code, message in alter(bootstrap, *alterations)]


def describe(
    bootstrap: str, components: Sequence[Component] = (), *, strict: bool = False
) -> dict[Parts, dict[str, float]]:
    """Send one DescribeClientQuotas; each entity's limits. AssertionError where the response is an error."""
    frame = describe_request(components, strict=strict, correlation_id=5, client_id="quota-client")
    response = QuotaEntities(0, _ask(bootstrap, frame))
    assert not response.error_code, response.error_message
    return dict(response)


def _ask(bootstrap: str, frame: bytes) -> bytes:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=_SECONDS_MAX) as sock,
        sock.makefile("rb") as file,
    ):
        sock.sendall(frame)
        prefix = file.read(4)
        rest = file.read(struct.unpack(">i", prefix)[0])
    return prefix + rest
