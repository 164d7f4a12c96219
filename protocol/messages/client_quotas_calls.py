"""DescribeClientQuotas and AlterClientQuotas, versions 0-1, as a client asks and reads (KIP-546).

For `sluice quotas`, and for mirroring the brokers' own quotas. Requests are written in version 0, which every
broker that has the two APIs speaks, and answers are read in both versions. What a broker does with them is
`client_quotas`.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, flexible
from protocol.errors import TruncatedError
from protocol.header import response_body_start
from protocol.messages.client_quotas import Alteration, Component, Parts, parts_bytes, read_parts
from protocol.primitives import Buffer, count, count_bytes, int16, skip, skip_tags, string, string_bytes

__all__ = ["DescribeAnswer", "alter_body", "describe_body", "read_alter_answer"]

_FLOAT64: Final = Struct(">d")


def describe_body(components: Sequence[Component], *, strict: bool, version: int = 0) -> bytes:
    """The fields of a request for entities."""
    compact = flexible(DESCRIBE_CLIENT_QUOTAS, version)
    tags = b"\0" if compact else b""
    body = bytearray(count_bytes(len(components), compact))
    for kind, match_type, match in components:
        body += string_bytes(kind, compact) + match_type.to_bytes(1, "big", signed=True)
        body += string_bytes(match, compact) + tags
    return bytes(body + bytes((strict,)) + tags)


def alter_body(alterations: Sequence[Alteration], *, validate_only: bool, version: int = 0) -> bytes:
    """The fields of a request that changes entities."""
    compact = flexible(ALTER_CLIENT_QUOTAS, version)
    tags = b"\0" if compact else b""
    body = bytearray(count_bytes(len(alterations), compact))
    for parts, ops in alterations:
        body += parts_bytes(parts, compact) + count_bytes(len(ops), compact)
        for key, value in ops:
            body += string_bytes(key, compact) + _FLOAT64.pack(value or 0.0) + bytes((value is None,)) + tags
        body += tags
    return bytes(body + bytes((validate_only,)) + tags)


class DescribeAnswer:
    """A whole answer to DescribeClientQuotas.

    Attributes:
        error_code, error_message: 0 and None where there are entities.
    """

    def __init__(self, frame: Buffer, version: int) -> None:
        """Read what stands before the entities.

        Raises:
            WireError: this is no such answer.
        """
        end = len(frame)
        self._frame = frame
        self._compact = flexible(DESCRIBE_CLIENT_QUOTAS, version)
        pos = response_body_start(frame, 0, end, DESCRIBE_CLIENT_QUOTAS, version)
        pos = skip(pos, 4, end)
        self.error_code = int16(frame, pos, end)
        self.error_message, self._pos = string(frame, pos + 2, end, self._compact)

    def __iter__(self) -> Iterator[tuple[Parts, dict[str, float]]]:
        """Each entity with its limits.

        Raises:
            WireError: this is no such answer.
        """
        frame, end, compact = self._frame, len(self._frame), self._compact
        entries, pos = count(frame, self._pos, end, compact)
        for _ in range(entries):
            parts, pos = read_parts(frame, pos, end, compact)
            values: dict[str, float] = {}
            size, pos = count(frame, pos, end, compact)
            for _ in range(size):
                key, pos = string(frame, pos, end, compact)
                if pos + 8 > end:
                    raise TruncatedError(f"a value at byte {pos} is cut off at {end}")
                values[key or ""] = _FLOAT64.unpack_from(frame, pos)[0]
                pos = skip_tags(frame, pos + 8, end) if compact else pos + 8
            if compact:
                pos = skip_tags(frame, pos, end)
            yield parts, values
        if compact:
            skip_tags(frame, pos, end)


def read_alter_answer(frame: Buffer, version: int) -> list[tuple[Parts, int, str | None]]:
    """Each entity's error code and message in a whole answer.

    Raises:
        WireError: this is no such answer.
    """
    end = len(frame)
    compact = flexible(ALTER_CLIENT_QUOTAS, version)
    pos = response_body_start(frame, 0, end, ALTER_CLIENT_QUOTAS, version)
    entries, pos = count(frame, skip(pos, 4, end), end, compact)
    results: list[tuple[Parts, int, str | None]] = []
    for _ in range(entries):
        error_code = int16(frame, pos, end)
        message, pos = string(frame, pos + 2, end, compact)
        parts, pos = read_parts(frame, pos, end, compact)
        if compact:
            pos = skip_tags(frame, pos, end)
        results.append((parts, error_code, message))
    if compact:
        skip_tags(frame, pos, end)
    return results
