"""What the two ends of `make saturate` say to each other: frames in the file format that `peers.c` reads."""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from protocol.api import API_VERSIONS, FETCH, MAX_VERSION, METADATA, PRODUCE
from tests.bench import wire
from tests.bench.lanes import NODE
from tests.cluster import HOST
from tests.hostile import broker_program as script
from tests.support.frames import produce_response

ANYTHING: Final = -1
TOPIC: Final = "saturate"
CLIENT_ID: Final = "saturate"

Entry = tuple[int, int, bytes]


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write entries of API key, version and frame."""
    path.write_bytes(
        b"".join(struct.pack(">hhi", key, version, len(frame)) + frame for key, version, frame in entries)
    )


def responses(broker_port: int, fetched_bytes: int) -> list[Entry]:
    """Return a broker's responses; that to a Fetch holds `fetched_bytes` of records."""
    fields = script.FetchFields(max_wait_ms=0, max_bytes=fetched_bytes, session=(0, -1))
    here = [(NODE, HOST, broker_port)]
    no_topics = b"\1"  # are asked for

    def all_versions(key: int, oldest: int, made: Callable[[int], bytes]) -> list[Entry]:
        return [(key, version, made(version)) for version in range(oldest, MAX_VERSION[key] + 1)]

    return [
        (ANYTHING, 0, script.anything(0)),
        *all_versions(API_VERSIONS, 0, lambda version: script.api_versions(version, 0)),
        *all_versions(METADATA, 0, lambda version: script.metadata(version, 0, no_topics, 0, here)),
        *all_versions(PRODUCE, 3, lambda version: produce_response(version, correlation_id=0)),
        *all_versions(FETCH, 4, lambda version: b"".join(script.fetched(version, 0, fields, fetched_bytes))),
    ]


def requests(api: str, size: int) -> list[Entry]:
    """Return what a client sends: ApiVersions, then a Produce of `size` bytes, or a Fetch, which is repeated."""
    repeated = (
        wire.produce(CLIENT_ID, TOPIC, size, 0) if api == "produce" else wire.fetch_first(CLIENT_ID, TOPIC)
    )
    return [(API_VERSIONS, 3, wire.api_versions(CLIENT_ID)), (0, 0, repeated)]
