"""DescribeConfigs 1: a few dynamic configs of topics and brokers, asked for by Sluice itself (KIP-133, KIP-73).

Version 1 is the last without compact lengths that every broker since 1.1 speaks, 4.x too. A broker describes itself
alone. Synonyms are not asked for: the value given is the one in force, a broker's own before the cluster's default.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from protocol.api import flexible
from protocol.header import response_body_start
from protocol.primitives import Buffer, count, int16, skip, string, string_bytes

__all__ = ["BROKER", "DESCRIBE_CONFIGS", "TOPIC", "VERSION", "Described", "read_answer", "request_body"]

DESCRIBE_CONFIGS: Final = 32
VERSION: Final = 1
TOPIC: Final = 2
BROKER: Final = 4


class Described(NamedTuple):
    """One resource: its configs by name, those without a value left out."""

    error_code: int
    name: str
    configs: Mapping[str, str]


def request_body(kind: int, names: Sequence[str], keys: Sequence[str]) -> bytes:
    """A request's fields: these keys of these topics or brokers."""
    assert not flexible(DESCRIBE_CONFIGS, VERSION), "plain lengths are written here"
    wanted = len(keys).to_bytes(4, "big") + b"".join(string_bytes(key, False) for key in keys)
    resources = b"".join(bytes((kind,)) + string_bytes(name, False) + wanted for name in names)
    return len(names).to_bytes(4, "big") + resources + b"\0"


def read_answer(frame: Buffer) -> list[Described]:
    """Read a whole answer.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = skip(response_body_start(frame, 0, end, DESCRIBE_CONFIGS, VERSION), 4, end)
    resources, pos = count(frame, pos, end, False)
    found = []
    for _ in range(resources):
        error_code = int16(frame, pos, end)
        _, pos = string(frame, pos + 2, end, False)
        name, pos = string(frame, skip(pos, 1, end), end, False)
        configs, pos = _configs(frame, pos, end)
        found.append(Described(error_code, name or "", configs))
    return found


def _configs(frame: Buffer, pos: int, end: int) -> tuple[dict[str, str], int]:
    entries, pos = count(frame, pos, end, False)
    configs = {}
    for _ in range(entries):
        key, pos = string(frame, pos, end, False)
        value, pos = string(frame, pos, end, False)
        # Whether it is read-only, its source, whether it is secret.
        pos = skip(pos, 3, end)
        synonyms, pos = count(frame, pos, end, False)
        for _ in range(synonyms):
            _, pos = string(frame, pos, end, False)
            _, pos = string(frame, pos, end, False)
            pos = skip(pos, 1, end)
        if key is not None and value is not None:
            configs[key] = value
    return configs, pos
