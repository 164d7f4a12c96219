"""`sluice-offline replay`: arguments, progress, files, signals, exit codes.

Exit codes: 0 after a replay, whose report counts lost and failed requests; 1 if the replay cannot run, with the reason
in one line; 3 if no request got a response although some expect one, or if none was sent; 130 and 143 after Ctrl-C and
SIGTERM, with a report on the replay so far.
"""

import argparse
import asyncio
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from commandline.amounts import duration
from commandline.arguments import not_installed
from commandline.program import FAILED, INTERRUPTED, NEGATIVE, OK, by_signal
from offline.errors import ReplayError
from offline.replay.driver import Driver
from offline.replay.messages import Broker
from offline.replay.reading import capture_files, read
from offline.replay.report import fetched_more, page, result, series, shown
from offline.replay.schedule import Plan, plan
from offline.replay.target import requirements_of

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PORT_MAX: Final = 65535
_LOST: Final = (
    "unanswered",
    "lost_with_connection",
    "dropped_here",
    "never_connected",
    "nothing_left_of",
    "not_reached",
    "partitions_left_out",
    "bytes_left_out",
)
_DESCRIPTION: Final = (
    "Open the recorded connections against a target and send the recorded requests at the recorded times, or at a "
    "multiple of their speed, whatever has come back (open loop). Payloads are made up, with the recorded sizes. "
    "Only against clusters for tests: it writes to the recorded topics."
)


def add_parser(subparsers: Any) -> None:
    """Add the command `replay` with its arguments."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "replay", help="send a capture again and measure", description=_DESCRIPTION
    )
    parser.add_argument(
        "capture", type=Path, nargs="+", metavar="CAPTURE", help="a directory, or files of it"
    )
    parser.add_argument(
        "--target", type=_address, required=True, metavar="HOST:PORT", help="a broker, or Sluice"
    )
    parser.add_argument("--speed", type=_positive, default=1.0, metavar="X", help="times as fast as recorded")
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=0.0,
        metavar="N",
        help="replay this many recorded seconds; all by default",
    )
    parser.add_argument(
        "--create", action="store_true", help="create and fill topics that the target does not have"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="replicas of topics that are created"
    )
    parser.add_argument(
        "--acks", choices=("all", "1"), default="all", help="acks of the Produce requests that had a response"
    )
    parser.add_argument(
        "--linger", type=_positive, default=30.0, metavar="S", help="seconds to wait for responses at the end"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as HTML")
    parser.add_argument("--no-progress", action="store_true", help="show no bar")
    parser.set_defaults(work=main)


def main(args: argparse.Namespace) -> int:
    """Replay a capture and write the report; returns the exit code."""
    try:
        for path in (args.json, args.html):
            if path is not None:
                _check(path)
        planned = plan(read(capture_files(args.capture)), args.speed, args.seconds)
        if not planned.sends:
            raise ReplayError("nothing is left to send")
        import uvloop

        found, measured = uvloop.run(_replay(args, planned))
        _write(args, planned, found, measured)
    except ReplayError as error:
        print(f"sluice-offline replay: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"sluice-offline replay: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("sluice-offline replay: stopped, and nothing is reported", file=sys.stderr)
        return INTERRUPTED
    return _code(found)


def _code(found: Mapping[str, Any]) -> int:
    if found["stopped_by_signal"]:
        return by_signal(int(found["stopped_by_signal"]))
    requests = found["requests"]
    silent = requests["sent"] and requests["sent"] == requests["without_answer_by_request"]
    return OK if requests["answered"] or silent else NEGATIVE


async def _replay(args: argparse.Namespace, planned: Plan) -> tuple[dict[str, Any], Driver]:
    """Run a plan; return the result and the driver that measured it.

    Raises:
        ReplayError: the replay cannot run.
    """
    # Imported late: other commands of sluice-offline need neither connections nor the packages of its extra.
    try:
        import google_crc32c  # noqa: F401 - `messages` and `frames` take it
        import jinja2  # noqa: F401 - `report.page` takes it
        from tqdm import tqdm

        from offline.replay.frames import Encoder
        from offline.replay.prepare import prepare
    except ImportError as error:
        raise ReplayError(not_installed(error.name or "a package", "offline")) from error

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    raise_open_files()
    need = requirements_of(entry.request for entry in planned.sends)
    placement = await prepare(args.target, need, create=args.create, replicas=args.replicas, say=say)
    encoder = Encoder(placement, -1 if args.acks == "all" else 1, int(time.time() * 1000))
    disable = True if args.no_progress else None  # None: where there is a terminal
    with tqdm(
        total=len(planned.sends), desc="replay", unit="req", disable=disable, dynamic_ncols=True
    ) as bar:
        driver = Driver(planned, encoder, placement.brokers, bar.update)
        running = asyncio.get_running_loop().create_task(driver.run(args.linger))
        with stopping(running.cancel) as caught, suppress(asyncio.CancelledError):
            await running
    found = result(planned, driver.samples, args.speed, encoder.left_out)
    return found | {"stopped_by_signal": caught[0] if caught else 0}, driver


def raise_open_files() -> None:
    """Raise this process's limit of open files as far as permitted, since each connection of a replay needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS refuses its own "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Call `stop` at Ctrl-C and SIGTERM in this block; yields the list of received signals."""
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def on_signal(number: int) -> None:
        caught.append(number)
        stop()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield caught
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def _write(args: argparse.Namespace, planned: Plan, found: dict[str, Any], driver: Driver) -> None:
    target = f"{args.target.host}:{args.target.port}"
    title = "Replay of " + ", ".join(path.name for path in args.capture)
    found = {"target": target, "capture": [str(path) for path in args.capture], **found}
    if args.json is not None:
        _whole(args.json, json.dumps(found, indent=2) + "\n")
    if args.html is not None:
        _whole(args.html, page(title, target, found, series(planned, driver.samples)))
    _summary(found)


def _summary(found: Mapping[str, Any]) -> None:
    requests, achieved = found["requests"], found["achieved"]
    if found["stopped_by_signal"]:
        print(f"stopped by {signal.Signals(found['stopped_by_signal']).name}: what follows is of a part")
    print(f"sent {requests['sent']} of {found['planned']['requests']}, responses {requests['answered']}")
    print(
        f"requests/s {achieved['requests_per_second']:g} of {found['planned']['requests_per_second']:g} planned"
    )
    for name, spread in (("latency ms", found["latency_ms"]), ("late ms   ", found["late_ms"])):
        if spread:
            print(f"{name} " + "  ".join(f"{share} {shown(value)}" for share, value in spread.items()))
    print(
        f"throttled  {found['throttle_ms']['requests']} responses, "
        f"{duration(found['throttle_ms']['total_ms'] / 1000)} in all"
    )
    lost = {name: requests[name] for name in _LOST if requests[name]}
    if lost:
        print("lost       " + "  ".join(f"{name} {count}" for name, count in lost.items()))
    if requests["errors"]:
        print(f"errors     {requests['errors']}")
    if more := fetched_more(found):
        print(more)


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".inprogress")


def _check(path: Path) -> None:
    """Check that a file can be written, before a replay that may take an hour.

    Raises:
        ReplayError, OSError: it cannot be written.
    """
    if path.is_dir():
        raise ReplayError(f"{path}: is a directory")
    _unfinished(path).touch()
    _unfinished(path).unlink()


def _whole(path: Path, text: str) -> None:
    """Write a file atomically, so that it is never there in part."""
    unfinished = _unfinished(path)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _address(text: str) -> Broker:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    host = host.removeprefix("[").removesuffix("]")
    try:
        host.encode("idna")
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT: no such name can be") from None
    return Broker(host, int(port))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
