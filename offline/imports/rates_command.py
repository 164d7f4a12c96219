"""`sluice-offline import prometheus` and `import csv`: arguments, and the import from beginning to end."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from commandline.arguments import not_installed
from commandline.program import OK
from offline.errors import InputError, OfflineError, SetupError
from offline.imports.labels import LABELS, Reading
from protocol.capture import FILE_PREFIX, FILE_SUFFIX

if TYPE_CHECKING:
    from offline.imports.rates import Samples

    Input = tuple[Callable[[], Iterator[Samples]], int]
    """Reads all points from the beginning; and the distance of points in ms, 0 if it is to be found."""

_STEP_S: Final = 15
_TOKEN_MAX: Final = 65_536
_TIME_MAX_S: Final = 1e11
_NOT_KNOWN: Final = (
    "What such rates do not say (bursts within a step, requests, connections) lowers the confidence of the advice, "
    "which names it."
)


def add_prometheus(importers: Any) -> None:
    """Add the command `import prometheus` with its arguments."""
    parser: argparse.ArgumentParser = importers.add_parser(
        "prometheus",
        help="make a capture of the rates by client that brokers export",
        description="Make a capture of the byte rates by client that brokers export to Prometheus: from responses of "
        f"/api/v1/query_range in files, or asked at --url. {_NOT_KNOWN}",
    )
    _add_common(parser, "responses of query_range, in the order of their times", "*")
    server = parser.add_argument_group("a query in place of files")
    server.add_argument("--url", default="", help="a server with Prometheus' HTTP API")
    server.add_argument(
        "--start",
        type=_time,
        metavar="TIME",
        help="first time: ISO 8601 (UTC without a zone) or seconds since 1970",
    )
    server.add_argument("--end", type=_time, metavar="TIME", help="last time; by default now")
    server.add_argument(
        "--step",
        type=_step,
        default=_STEP_S,
        metavar="SECONDS",
        help="distance of points; best that of scrapes",
    )
    server.add_argument(
        "--query",
        action="append",
        metavar="PROMQL",
        help="what to ask, more than once for several; by default byte-rate and throttle-time of all clients",
    )
    server.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a file with a bearer token; needs https"
    )
    server.add_argument("--ca-file", default="", metavar="FILE", help="certificates to trust, for TLS")
    parser.set_defaults(work=lambda parsed: _import(parsed, _prometheus_input))


def add_csv(importers: Any) -> None:
    """Add the command `import csv` with its arguments."""
    parser: argparse.ArgumentParser = importers.add_parser(
        "csv",
        help="make a capture of rates by client in CSV files",
        description="Make a capture of byte rates by client in CSV. Either the columns time and value, and labels as "
        "further ones: client_id, user, broker, direction (produce or fetch), metric. Or a column of times and one of "
        'bytes/s for each series, whose header is its client id or name{label="value"}, as Grafana exports it '
        'without "Formatted data". Times are seconds or milliseconds since 1970 or ISO 8601 (UTC without a zone). '
        f"{_NOT_KNOWN}",
    )
    _add_common(parser, "CSV files, in the order of their times", "+")
    parser.set_defaults(work=lambda parsed: _import(parsed, _csv_input))


def _add_common(parser: argparse.ArgumentParser, text: str, number: str) -> None:
    parser.add_argument("files", type=Path, nargs=number, metavar="FILE", help=text)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="directory for the capture")
    parser.add_argument(
        "--direction",
        choices=("produce", "fetch"),
        default="",
        help="of series whose name and labels do not say it",
    )
    parser.add_argument(
        "--label",
        type=_label,
        action="append",
        metavar="PART=LABEL",
        help=f"the label that names a {', '.join(LABELS)}, if it is none of the usual ones",
    )


def _label(text: str) -> tuple[str, str]:
    part, _, label = text.partition("=")
    if part not in LABELS or not label:
        raise argparse.ArgumentTypeError(f"{text!r} is not {', '.join(LABELS)} = the name of a label")
    return part, label


def _step(text: str) -> float:
    found = _number(text)
    if found is None or not 1 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to 3600 seconds")
    return found


def _time(text: str) -> int:
    """Return a time in ms since 1970."""
    seconds = _number(text)
    if seconds is None:
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-01-31T00:00:00Z") from error
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < _TIME_MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds since 1970")
    return round(seconds * 1000)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _import(parsed: argparse.Namespace, opened: Callable[[argparse.Namespace], Any]) -> int:
    try:
        from offline.imports.capture_file import CaptureFile, schema
        from offline.imports.rates import Rates
    except ImportError as error:
        raise SetupError(not_installed(error.name or "a package", "offline")) from error
    reading = Reading(parsed.direction, dict(parsed.label or ()))
    _check_output(parsed.output)
    with opened(parsed) as (read, step_ms):
        rates = Rates(read, reading, step_ms)
        rates.survey()
        for line in rates.lines():
            print(f"import: {line}")
        try:
            file = CaptureFile(parsed.output, rates.process)
            try:
                for table in rates.tables(schema()):
                    file.add_table(table)
                file.finish(rates.source())
            finally:
                file.discard()
        except OSError as error:
            raise OfflineError(f"{parsed.output}: {error.strerror or error}") from error
    print(f"import: {file.rows:,} requests in {file.path}")
    print(f"import: confidence of the advice at most {rates.source()}")
    return OK


def _check_output(directory: Path) -> None:
    """Make the directory.

    Raises:
        InputError: it cannot be made, or has a capture: both would be read together.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        old = next(directory.glob(f"{FILE_PREFIX}*{FILE_SUFFIX}"), None)
    except OSError as error:
        raise InputError(f"--output {directory}: {error.strerror or error}") from error
    if old:
        raise InputError(f"--output {directory}: has a capture already ({old.name})")


@contextmanager
def _csv_input(parsed: argparse.Namespace) -> Iterator["Input"]:
    from offline.imports.csv_rates import read_csv

    yield partial(_all, read_csv, parsed.files), 0


@contextmanager
def _prometheus_input(parsed: argparse.Namespace) -> Iterator["Input"]:
    from offline.imports.prometheus import QUERY, Server, Window, read_matrix

    if bool(parsed.files) == bool(parsed.url):
        raise InputError("use either files, or --url with --start")
    if parsed.files:
        yield partial(_all, read_matrix, parsed.files), 0
        return
    if parsed.start is None:
        raise InputError("--url needs --start")
    end_ms = parsed.end if parsed.end is not None else time.time_ns() // 1_000_000
    if not 0 <= parsed.start < end_ms:
        raise InputError("--start must be before --end")
    step_ms = round(parsed.step * 1000)
    server = Server(parsed.url, _token(parsed.token_file), parsed.ca_file)
    with TemporaryDirectory(prefix=".query-", dir=parsed.output) as kept:
        window = Window(parsed.start, end_ms, step_ms)
        yield partial(_all, read_matrix, server.ask(parsed.query or [QUERY], window, Path(kept))), step_ms


def _all(read: Callable[[Path], Iterator["Samples"]], files: Sequence[Path]) -> Iterator["Samples"]:
    for file in files:
        yield from read(file)


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        with file.open(encoding="ascii") as source:
            token = source.read(_TOKEN_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as a token: {error}") from error
    if not token or any(character.isspace() for character in token):
        raise InputError(f"{file}: is no token: empty, or with spaces in it")
    return token
