"""`sluice capture`: inspects captures, and records whole requests with a relay of its own.

`inspect` shows the contents of a directory's files, and the unreadable ones. `frames` runs a relay without quotas that
records: `sluice serve` with a configuration made from its arguments. It is for clusters without a proxy; a running
proxy records with `[capture] frames`. It ends on SIGTERM, Ctrl-C, or after `--seconds`.
"""

import argparse
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from commandline.amounts import count, size
from commandline.arguments import not_installed
from commandline.program import FAILED, OK
from protocol.api import API_NAMES
from protocol.capture import FILE_PREFIX, FILE_SUFFIX, FRAME, SCHEMA_KEY, SCHEMA_VERSION, UNFINISHED_SUFFIX
from proxy.commands.serve import listener
from proxy.config import load
from proxy.system import logs
from proxy.system.errors import SluiceError, UsageError

DESCRIPTION: Final = "Inspect captures, and record whole requests for replay."
_INSPECT: Final = "show the contents of captures"
_RECORD: Final = "record whole requests with a relay that has no quotas"
SHOWN_MAX: Final = 10
_COLUMNS: Final = ("wall_ms", "connection", "client_id", "api_key", "request_bytes", "response_bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `sluice capture`, its subcommands and their arguments."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shown = commands.add_parser(
        "inspect",
        help=_INSPECT,
        description=f"{_INSPECT.capitalize()}; exit code 1 if a file cannot be read.",
    )
    shown.add_argument("path", type=Path, nargs="+", metavar="PATH", help="capture directories or files")
    shown.set_defaults(command=inspect)
    frames = commands.add_parser("frames", help=_RECORD, description=f"{_RECORD.capitalize()}.")
    frames.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", required=True, help="the brokers")
    frames.add_argument(
        "--listen",
        metavar="HOST:PORT",
        required=True,
        help="the bootstrap port; broker N is then at PORT + 1 + N",
    )
    frames.add_argument(
        "--directory", type=Path, metavar="DIR", required=True, help="directory for the capture files"
    )
    frames.add_argument(
        "--payload",
        choices=("blank", "keep"),
        default="blank",
        help="of Produce requests: left out (replay generates it), or kept",
    )
    frames.add_argument(
        "--seconds", type=float, default=0.0, metavar="S", help="stop after this time; 0 for no limit"
    )
    frames.set_defaults(command=record)


def record(options: argparse.Namespace) -> int:
    """Run a proxy that records the requests it relays, until a signal or for `--seconds`; return the exit code."""
    if options.seconds < 0:
        raise UsageError("--seconds must not be less than 0")
    tables: dict[str, object] = {
        "cluster": {"bootstrap": options.bootstrap_server},
        "listeners": [listener(options.listen, None)],
        "capture": {"directory": str(options.directory.resolve()), "frames": options.payload},
        "admin": {"bind": ""},
    }
    config = load(None, {}, tables)
    logs.set_up(config.log.level, config.log.format)
    from proxy.app import run as run_app

    if options.seconds:
        timer = threading.Timer(options.seconds, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()
    return run_app(config)


def inspect(options: argparse.Namespace) -> int:
    """Print the contents of captures; return the exit code: 1 if a file cannot be read."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SluiceError(f"captures are Parquet: {not_installed('pyarrow', 'capture')}") from error
    files = list(_capture_files(options.path))
    if not files:
        raise SluiceError(f"no {FILE_PREFIX}*{FILE_SUFFIX} in {', '.join(map(str, options.path))}")
    wrong = 0
    for path in files:
        try:
            for line in _describe_file(path, pq):
                print(line)
        except (OSError, ValueError) as error:  # pyarrow's own errors are of these
            wrong += 1
            print(f"{path}: cannot be read: {str(error).splitlines()[0]}")
    return FAILED if wrong else OK


def _capture_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for entry in sorted(path.iterdir()):
            if entry.name.startswith(FILE_PREFIX) and entry.name.endswith((FILE_SUFFIX, UNFINISHED_SUFFIX)):
                yield entry


def _describe_file(path: Path, pq: Any) -> Iterator[str]:
    if path.name.endswith(UNFINISHED_SUFFIX):
        yield f"{path}: {size(path.stat().st_size)}, not finished"
        return
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        version = (schema.metadata or {}).get(SCHEMA_KEY.encode(), b"").decode()
        if version != str(SCHEMA_VERSION):
            raise ValueError(
                f"is not a capture of version {SCHEMA_VERSION}" + (f" but {version}" if version else "")
            )
        with_frames = FRAME.name in schema.names
        rows: Counter[str] = Counter()
        clients: Counter[str] = Counter()
        seen: set[int] = set()
        frames = 0
        first_ms, last_ms = 2**62, 0
        for batch in file.iter_batches(columns=[*_COLUMNS, *([FRAME.name] if with_frames else [])]):
            for row in batch.to_pylist():
                rows[API_NAMES.get(row["api_key"], str(row["api_key"]))] += 1
                clients[row["client_id"]] += row["request_bytes"] + max(row["response_bytes"], 0)
                seen.add(row["connection"])
                frames += bool(row.get(FRAME.name))
                first_ms, last_ms = min(first_ms, row["wall_ms"]), max(last_ms, row["wall_ms"])
    kept = f", {count(frames, 'whole request')}" if with_frames else ""
    yield f"{path}: {size(path.stat().st_size)}, {count(rows.total(), 'row')} of {count(len(seen), 'connection')}{kept}"
    if rows:
        yield f"  {_when(first_ms)} to {_when(last_ms)}"
        yield "  requests: " + ", ".join(f"{name} {count}" for name, count in rows.most_common(SHOWN_MAX))
        yield "  bytes by client id: " + ", ".join(
            f"{name!r} {size(total)}" for name, total in clients.most_common(SHOWN_MAX)
        )


def _when(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
