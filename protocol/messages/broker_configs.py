"""DescribeConfigs 0-4: removes the addresses of brokers and controllers from responses (KIP-133, KIP-226, KIP-569).

Configs that hold such addresses lose their values, also those of synonyms, and are marked as sensitive, as Kafka marks
hidden values. Configs of topics and groups hold none; all other fields are not changed.

Version notes: synonyms since 1, types and documentation since 3, flexible since 4.
"""

from typing import Final

from protocol.api import DESCRIBE_CONFIGS
from protocol.header import response_body_start
from protocol.primitives import Buffer, count, count_bytes, skip, skip_string, skip_tags, string, string_span

__all__ = ["HIDDEN", "names_broker", "without_addresses"]

HIDDEN: Final = frozenset(
    (
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        # Before KRaft, and before listeners.
        "zookeeper.connect",
        "host.name",
        "port",
        "advertised.host.name",
        "advertised.port",
    )
)
_BROKER: Final = 4  # a resource type
_SYNONYMS_SINCE: Final = 1
_DOCUMENTED_SINCE: Final = 3
_FLEXIBLE_SINCE: Final = 4


def names_broker(frame: Buffer, body: int, version: int) -> bool:
    """Whether a whole request whose fields begin at `body` asks for a broker's own configs.

    Raises:
        WireError: it is not such a request.
    """
    end = len(frame)
    compact = version >= _FLEXIBLE_SINCE
    resources, pos = count(frame, body, end, compact)
    for _ in range(resources):
        start, stop = string_span(frame, skip(pos, 1, end), end, compact)
        if (
            frame[pos] == _BROKER and stop > start
        ):  # without a name: the default of all brokers, without addresses
            return True
        keys, pos = count(frame, max(start, stop), end, compact)
        for _ in range(keys):
            pos = skip_string(frame, pos, end, compact)
        pos = skip_tags(frame, pos, end) if compact else pos
    return False


def without_addresses(frame: bytes, version: int) -> bytes:
    """Return a whole response without the values that contain addresses of brokers and controllers.

    Raises:
        WireError: it is not such a response.
    """
    end = len(frame)
    compact = version >= _FLEXIBLE_SINCE
    parts: list[bytes] = []
    passed = 4
    resources, pos = count(
        frame, skip(response_body_start(frame, 0, end, DESCRIBE_CONFIGS, version), 4, end), end, compact
    )
    for _ in range(resources):
        # Error code, error message; type, name.
        pos = skip_string(frame, skip(pos, 2, end), end, compact)
        pos = skip_string(frame, skip(pos, 1, end), end, compact)
        entries, pos = count(frame, pos, end, compact)
        for _ in range(entries):
            start = pos
            name, hidden, pos = _entry(frame, pos, end, version)
            if name in HIDDEN:
                parts += (frame[passed:start], hidden)
                passed = pos
        pos = skip_tags(frame, pos, end) if compact else pos
    body = b"".join((*parts, frame[passed:]))
    return len(body).to_bytes(4, "big") + body


def _entry(frame: bytes, pos: int, end: int, version: int) -> tuple[str | None, bytes, int]:
    """Return a config's name, its bytes (without values if it is one of HIDDEN), and the position after it."""
    compact = version >= _FLEXIBLE_SINCE
    null = count_bytes(-1, True) if compact else b"\xff\xff"
    start = pos
    name, value_at = string(frame, pos, end, compact)
    hides = name in HIDDEN
    flags_at = skip_string(frame, value_at, end, compact)
    # Whether it is read-only, its source, whether it is sensitive.
    pos = skip(flags_at, 3, end)
    parts = [frame[start:value_at], null, frame[flags_at : flags_at + 2], b"\1"] if hides else []
    if version >= _SYNONYMS_SINCE:
        synonyms_at = pos
        synonyms, pos = count(frame, pos, end, compact)
        parts.append(frame[synonyms_at:pos])
        for _ in range(synonyms):
            synonym_at = pos
            value_at = skip_string(frame, pos, end, compact)
            source_at = skip_string(frame, value_at, end, compact)
            pos = skip(source_at, 1, end)
            pos = skip_tags(frame, pos, end) if compact else pos
            if hides:
                parts += (frame[synonym_at:value_at], null, frame[source_at:pos])
    rest = pos
    if version >= _DOCUMENTED_SINCE:
        pos = skip_string(frame, skip(pos, 1, end), end, compact)
    pos = skip_tags(frame, pos, end) if compact else pos
    parts.append(frame[rest:pos])
    return name, b"".join(parts) if hides else b"", pos
