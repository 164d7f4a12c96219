"""What the three Python drivers share: arguments, the payload, JSON lines, and the tallies.

The contract is in tests/interop/drivers/README.md. Nothing here knows a Kafka client.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import logging
import os
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Self

INDEX_DIGITS = 10
ABORTED_BASE = 1_000_000
# With it the client speaks TLS, and trusts this authority.
CA_FILE = os.environ.get("INTEROP_CA_FILE", "")
COMMANDS = ("capabilities", "produce", "consume", "transact", "admin")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line every driver understands."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=COMMANDS)
    for name, default in (
        ("bootstrap", "127.0.0.1:9092"),
        ("client-id", "interop"),
        ("topic", "interop"),
        ("group", ""),
        ("group-protocol", "classic"),
        ("acks", "all"),
        ("idempotence", "default"),
        ("compression", "none"),
        ("isolation", "read_uncommitted"),
        ("transactional-id", ""),
        ("stop-file", ""),
        ("properties", ""),
    ):
        parser.add_argument(f"--{name}", default=default)
    for name, number in (
        ("records", 0),
        ("size", 1000),
        ("partitions", 1),
        ("replication", 1),
        ("outstanding", 500),
        ("fetch-bytes", 0),
        ("watch-ms", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--seconds", type=float, default=0.0)
    return parser.parse_args(argv)


def run(client: str, compressions: Sequence[str], *commands: Callable[[argparse.Namespace], object]) -> None:
    """Run the one of these commands that is asked for; `produce` once with each compression."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    options = parse_arguments(sys.argv[1:])
    if options.command == "capabilities":
        emit("capabilities", client=client, compressions=compressions, transactions=True)
        return
    command = {command.__name__: command for command in commands}[options.command]
    for compression in options.compression.split(",") if command.__name__ == "produce" else ("none",):
        options.compression = compression
        done = command(options)
        if inspect.iscoroutine(done):
            asyncio.run(done)


def compressions(codec: ModuleType) -> list[str]:
    """Those that kafka-python or aiokafka finds libraries for."""
    return ["none", *(name for name in ("gzip", "snappy", "lz4", "zstd") if getattr(codec, f"has_{name}")())]


def python_client(options: argparse.Namespace) -> dict[str, object]:
    """Settings of each client of kafka-python and aiokafka."""
    found: dict[str, object] = {"bootstrap_servers": options.bootstrap, "client_id": options.client_id}
    if CA_FILE:
        found |= {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=CA_FILE)}
    return found


def python_producer(options: argparse.Namespace) -> dict[str, object]:
    """Acks and idempotence where they are not the client's defaults (idempotence goes with acks=all only)."""
    compression = None if options.compression == "none" else options.compression
    settings = python_client(options) | {"compression_type": compression}
    if options.acks != "default":
        settings["acks"] = "all" if options.acks == "all" else int(options.acks)
    if options.idempotence != "default":
        settings["enable_idempotence"] = options.idempotence == "on"
    elif options.acks in {"0", "1"}:
        settings["enable_idempotence"] = False
    return settings


def python_consumer(options: argparse.Namespace) -> dict[str, object]:
    """Of a consumer, with a group or without."""
    settings = python_client(options) | {
        "group_id": options.group or None,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": bool(options.group),
        "isolation_level": options.isolation,
    }
    if options.fetch_bytes:
        settings |= dict.fromkeys(("fetch_max_bytes", "max_partition_fetch_bytes"), options.fetch_bytes)
    return settings


def emit(event: str, **fields: object) -> None:
    """Print one JSON line, at once: the tests read while the driver runs."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def payload(index: int, size: int) -> bytes:
    """Record number `index`, filled up to `size` bytes."""
    return f"{index:0{INDEX_DIGITS}d}".encode().ljust(size, b"s")


@dataclass(slots=True)
class Clock:
    """Milliseconds since the command began, and whether it is over: by time, or because the stop file is there."""

    seconds: float
    stop_file: str = ""
    started: float = field(default_factory=time.monotonic)

    def now_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)

    def over(self) -> bool:
        late = self.seconds > 0 and time.monotonic() - self.started >= self.seconds
        return late or (self.stop_file != "" and Path(self.stop_file).exists())


@dataclass(slots=True)
class Tally:
    """What was produced or consumed so far."""

    clock: Clock
    watched: bool = False
    records: int = 0
    size: int = 0
    errors: int = 0
    index_sum: int = 0
    assignments: int = 0
    slowest_ms: int = 0
    first_ms: int = -1
    last_ms: int = -1
    progress_ms: int = 0

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """For a command with these options, which begins now."""
        return cls(Clock(options.seconds, options.stop_file), options.watch_ms > 0)

    def wants(self, options: argparse.Namespace, records: int) -> bool:
        """Whether there are to be more records than these."""
        return not self.clock.over() and (options.records == 0 or records < options.records)

    def error(self, message: object) -> None:
        """Count and print what the client reported to its user."""
        self.errors += 1
        emit("error", at_ms=self.clock.now_ms(), message=str(message)[:500])

    def failed(self, index: int, message: object) -> None:
        """Count and print a record that the client says it could not deliver."""
        emit("failed", indexes=[index])
        self.error(message)

    def record(self, size: int, index: int) -> None:
        if self.watched:
            emit("record", index=index, unix_ms=time.time_ns() // 1_000_000)
        now = self.clock.now_ms()
        if self.first_ms < 0:
            self.first_ms = now
        self.last_ms = now
        self.records += 1
        self.size += size

    def acknowledged(self, index: int, size: int, sent_ms: int) -> None:
        self.record(size, index)
        self.slowest_ms = max(self.slowest_ms, self.last_ms - sent_ms)

    def consumed(self, value: bytes | None) -> None:
        data = value or b""
        index = int(data[:INDEX_DIGITS] or b"0")
        self.record(len(data), index)
        self.index_sum += index
        if self.last_ms - self.progress_ms >= 1000 or self.records == 1:
            self.progress_ms = self.last_ms
            emit("progress", at_ms=self.last_ms, records=self.records, bytes=self.size)

    def assigned(self, partitions: Sequence[int]) -> None:
        self.assignments += 1
        emit("assigned", at_ms=self.clock.now_ms(), partitions=sorted(partitions))

    def produced_line(self, options: argparse.Namespace) -> None:
        emit(
            "produced",
            compression=options.compression,
            records=self.records,
            bytes=self.size,
            errors=self.errors,
            slowest_ms=self.slowest_ms,
            first_ms=self.first_ms,
            last_ms=self.last_ms,
        )

    def consumed_line(self) -> None:
        emit(
            "consumed",
            records=self.records,
            bytes=self.size,
            errors=self.errors,
            rebalances=max(0, self.assignments - 1),
            index_sum=self.index_sum,
            first_ms=self.first_ms,
            last_ms=self.last_ms,
        )
