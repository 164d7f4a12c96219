"""AlterClientQuotas and DescribeClientQuotas over one plain or TLS connection (KIP-546), for `apply`.

The bytes are `protocol.messages.client_quotas_calls`', as `sluice quotas` uses them; the proxy's own client is
asynchronous and not to be imported here. Where a server asks for SASL, `sluice quotas apply FILE` does the same with
`--command-config`, and the errors say so.
"""

import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from offline.errors import ApplyError
from protocol.errors import WireError
from protocol.messages.client_quotas import Alteration, Parts
from protocol.messages.client_quotas_calls import (
    DescribeAnswer,
    alter_request,
    describe_request,
    read_alter_answer,
)

__all__ = ["QuotaApi"]

_SECONDS_MAX: Final = 30.0
_ANSWER_BYTES_MAX: Final = 256 * 1024**2
_ALTERATIONS_MAX: Final = 1000
_CLIENT_ID: Final = "sluice-offline"
_HINT: Final = "a server that asks for SASL, which `sluice quotas apply FILE --command-config ...` speaks"


class QuotaApi:
    """One connection to whoever answers the quota API."""

    def __init__(self, server: str, ca_file: str = "") -> None:
        self._server = server
        self._ca_file = ca_file
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def __enter__(self) -> Self:
        host, colon, port = self._server.rpartition(":")
        if not colon or not port.isdigit():
            raise ApplyError(f"--bootstrap-server {self._server} is not HOST:PORT")
        try:
            plain = socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_MAX)
            self._socket = self._wrapped(plain, host.strip("[]"))
        except OSError as error:
            raise ApplyError(f"{self._server} cannot be reached: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def describe(self) -> list[tuple[Parts, dict[str, float]]]:
        """Every entity with its limits."""
        self._correlation_id += 1
        frame = describe_request((), strict=False, correlation_id=self._correlation_id, client_id=_CLIENT_ID)
        try:
            answer = DescribeAnswer(self._ask(frame), 0)
            if answer.error_code:
                raise ApplyError(answer.error_message or f"{self._server}: error {answer.error_code}")
            return list(answer)
        except WireError as error:
            raise ApplyError(f"{self._server} does not respond to DescribeClientQuotas: {error}") from error

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool) -> list[tuple[Parts, str]]:
        """Alter entities; those that were refused, with the reason."""
        refused: list[tuple[Parts, str]] = []
        for start in range(0, len(alterations), _ALTERATIONS_MAX):
            self._correlation_id += 1
            frame = alter_request(
                alterations[start : start + _ALTERATIONS_MAX],
                validate_only=validate_only,
                correlation_id=self._correlation_id,
                client_id=_CLIENT_ID,
            )
            try:
                refused += _refused(read_alter_answer(self._ask(frame), 0))
            except WireError as error:
                raise ApplyError(f"{self._server} does not respond to AlterClientQuotas: {error}") from error
        return refused

    def _wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        if not self._ca_file:
            return plain
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
            return context.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise

    def _ask(self, frame: bytes) -> bytes:
        assert self._socket is not None, "it is used within `with`"
        try:
            self._socket.sendall(frame)
            prefix = self._read(4)
            (length,) = struct.unpack(">i", prefix)
            if not 0 < length <= _ANSWER_BYTES_MAX:
                raise ApplyError(
                    f"{self._server} is not a Kafka server, or expects TLS (--ca-file); or {_HINT}"
                )
            return prefix + self._read(length)
        except OSError as error:
            raise ApplyError(f"{self._server} does not answer: {error}; perhaps {_HINT}") from error

    def _read(self, size: int) -> bytes:
        assert self._socket is not None, "it is used within `with`"
        found = bytearray()
        while len(found) < size:
            piece = self._socket.recv(min(size - len(found), 1 << 20))
            if not piece:
                raise ApplyError(
                    f"{self._server} closed the connection; it may expect TLS (--ca-file), or be {_HINT}"
                )
            found += piece
        return bytes(found)


def _refused(results: Iterable[tuple[Parts, int, str | None]]) -> list[tuple[Parts, str]]:
    return [(parts, message or f"error {code}") for parts, code, message in results if code]
