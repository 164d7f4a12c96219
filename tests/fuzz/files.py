"""Readers of files, and of records of the quota topic.

Files are what operators write, what others leave in a shared directory, what a full disk leaves of it. To the quota
topic every client with the right to write there can write any bytes.
"""

import logging
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Final

from proxy.commands.reassign_plan import read_reassignment
from proxy.commands.servers import read_command_config
from proxy.config import QuotaSettings, Source, compare, read_definitions, reload
from proxy.control.cluster.brokers import BrokerMap, MapFile
from proxy.control.quotas.file_store import FileStore
from proxy.control.reassign.journal import LineError, read_line, write_line
from proxy.system.errors import SluiceError
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.records import Author, RecordError, key_of, read_key, read_setting, value_of
from quotas.definitions.toml_file import render
from tests.fuzz.draw import Draw, stretched
from tests.fuzz.stopwatch import timed

_MEMORY: Final = Path("/dev/shm")


def _silent(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """A target without its log lines: each damaged file is told in one."""

    @wraps(target)
    def run(data: bytes) -> None:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            target(data)
        finally:
            logging.disable(before)

    return run


@cache
def directory() -> Path:
    """A directory of this process's own, in memory where that is possible."""
    base = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="sluice-fuzz-", dir=base))


def _content(data: bytes) -> bytes:
    """A file's content; what begins with a zero says how the rest is stretched."""
    if data[:1] != b"\0":
        return data
    draw = Draw(data[1:])
    how = (draw.int16(), draw.byte(), draw.byte() % 0x90, 0)
    return stretched(draw.rest(), *how)


def _written(name: str, data: bytes) -> Path:
    path = directory() / name
    path.write_bytes(_content(data))
    return path


@_silent
def quotas_file(data: bytes) -> None:
    """The quotas file: read at start, read again by the store, written again."""
    path = _written("quotas.toml", data)
    with suppress(SluiceError):
        found = read_definitions(QuotaSettings(file=path))
        render(found)
    with suppress(SluiceError):
        FileStore(QuotaSettings(file=path))


@_silent
def configuration(data: bytes) -> None:
    """The configuration: read, and compared with the one that runs."""
    path = _written("sluice.toml", data)
    with suppress(SluiceError):
        found = reload(Source(path))
        compare(found, found)


@_silent
def broker_map(data: bytes) -> None:
    """`brokers.json`: whatever it holds, there is a map, and names in it that can be asked for."""
    _written("brokers.json", data)
    stats = Stats()
    brokers = BrokerMap((), stats)
    for broker, address in MapFile(directory(), stats).read().items():
        brokers.learn(broker, *address)
        brokers.upstream(broker)
    brokers.targets()
    for host in brokers.hosts():
        host.encode("idna")  # as the resolver does


@_silent
def journal_line(data: bytes) -> None:
    """A line of the reassignments' journal; with a right checksum where the first byte is odd."""
    line = data[1:]
    if data[:1] and data[0] & 1:
        line = b"%08x %s" % (zlib.crc32(line), line)
    with suppress(LineError):
        sequence, record = read_line(line)
        assert read_line(write_line(sequence, record).rstrip(b"\n")) == (sequence, record), (
            "written as it was read"
        )


@_silent
def tool_file(data: bytes) -> None:
    """Files of Kafka's own tools: a reassignment, a client's properties."""
    path = _written("tool.json", data[1:])
    with suppress(SluiceError):
        if data[:1] < b"\x80":
            read_reassignment(path)
        else:
            read_command_config(path)


_AUTHOR = Author("fuzz", "192.0.2.1:1", "2026-01-31T12:00:00.000Z")


def quota_records(data: bytes) -> None:
    """Records, each a key and a value with two bytes for their lengths; a value of length 0 is a tombstone."""
    draw = Draw(data)
    definitions = Definitions()
    while draw:
        key, value = draw.take(draw.int16()), draw.take(draw.int16())
        with suppress(RecordError):
            entity, limit = timed("key", read_key, key)
            assert key_of(entity, limit) == key, "an entity has one spelling"
            setting = timed("value", read_setting, entity, limit, value or None)
            if setting is None:
                definitions.put(entity, {})
                continue
            definitions.put(entity, {limit: setting.value})
            written = read_setting(entity, limit, value_of(setting.value, _AUTHOR))
            assert written is not None, "what is read can be written"
            assert written.value == setting.value, "what is read can be written"
