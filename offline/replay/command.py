"""`sluice-offline replay`: arguments, progress, files, exit codes.

0   replayed; what was lost or answered with errors is in the report
2   it could not be: one line says why
3   replayed, and nothing at all was answered
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from offline.replay.answers import Broker
from offline.replay.driver import Driver
from offline.replay.errors import ReplayError
from offline.replay.frames import Encoder
from offline.replay.measure import result, series
from offline.replay.reading import capture_files, read
from offline.replay.report import page
from offline.replay.schedule import Plan, plan
from offline.replay.target import prepare, wanted

__all__ = ["add_parser", "main", "replay"]

FAILED: Final = 2
UNANSWERED: Final = 3
_PORT_MAX: Final = 65535
_DESCRIPTION: Final = (
    "Open the recorded connections against a target and send the recorded requests at the recorded times, or at a "
    "multiple of their speed, whatever has come back (open loop). Payloads are made up, with the recorded sizes. "
    "Only against clusters for tests: it writes to the recorded topics."
)


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add `replay` to a command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "replay", help="send a capture again and measure", description=_DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument(
        "capture", type=Path, nargs="+", metavar="CAPTURE", help="a directory, or files of it"
    )
    parser.add_argument(
        "--target", type=_address, required=True, metavar="HOST:PORT", help="a broker, or Sluice"
    )
    parser.add_argument(
        "--speed", type=_positive, default=1.0, metavar="X", help="times as fast as recorded (1)"
    )
    parser.add_argument(
        "--seconds", type=_positive, default=0.0, metavar="N", help="of recorded time, no more"
    )
    parser.add_argument("--create", action="store_true", help="create and fill topics that the target lacks")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="of topics that are created (1)")
    parser.add_argument(
        "--acks", choices=("all", "1"), default="all", help="of a Produce that was answered (all)"
    )
    parser.add_argument(
        "--linger", type=_positive, default=30.0, metavar="S", help="wait for answers at the end (30)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report")
    parser.add_argument("--no-progress", action="store_true", help="show no bar")
    parser.set_defaults(run=main)
    return parser


def main(args: argparse.Namespace) -> int:
    """Replay and report; gives the exit code."""
    try:
        planned = _planned(args)
        found, measured = replay(args, planned)
        _write(args, planned, found, measured)
    except ReplayError as error:
        print(f"sluice-offline replay: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"sluice-offline replay: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    return 0 if found["requests"]["answered"] or not found["requests"]["sent"] else UNANSWERED


def _planned(args: argparse.Namespace) -> Plan:
    planned = plan(read(capture_files(args.capture)), args.speed, args.seconds)
    if not planned.sends:
        raise ReplayError("nothing is left to send")
    return planned


def replay(args: argparse.Namespace, planned: Plan) -> tuple[dict[str, Any], Driver]:
    """Carry a plan out; gives the result and what measured it.

    Raises:
        ReplayError: it can not be.
    """
    import uvloop

    return uvloop.run(_replay(args, planned))


async def _replay(args: argparse.Namespace, planned: Plan) -> tuple[dict[str, Any], Driver]:
    from tqdm import tqdm

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    need = wanted(entry.request for entry in planned.sends)
    placement = await prepare(args.target, need, create=args.create, replicas=args.replicas, say=say)
    encoder = Encoder(placement, -1 if args.acks == "all" else 1, int(time.time() * 1000))
    disable = True if args.no_progress else None  # None: where there is a terminal
    with tqdm(
        total=len(planned.sends), desc="replay", unit="req", disable=disable, dynamic_ncols=True
    ) as bar:
        driver = Driver(planned, encoder, placement.brokers, bar.update)
        await driver.run(args.linger)
    return result(planned, driver.samples, args.speed, encoder.unplaced), driver


def _write(args: argparse.Namespace, planned: Plan, found: dict[str, Any], driver: Driver) -> None:
    target = f"{args.target.host}:{args.target.port}"
    title = "Replay of " + ", ".join(path.name for path in args.capture)
    found = {"target": target, "capture": [str(path) for path in args.capture], **found}
    if args.json is not None:
        _whole(args.json, json.dumps(found, indent=2) + "\n")
    if args.html is not None:
        _whole(args.html, page(title, target, found, series(planned, driver.samples)))
    latency, late = found["latency_ms"], found["late_ms"]
    requests, achieved = found["requests"], found["achieved"]
    print(f"sent {requests['sent']} of {found['planned']['requests']}, answered {requests['answered']}")
    print(
        f"requests/s {achieved['requests_per_second']:g} of {found['planned']['requests_per_second']:g} planned"
    )
    if latency:
        print("latency ms " + "  ".join(f"{name} {value:g}" for name, value in latency.items()))
        print("late ms    " + "  ".join(f"{name} {value:g}" for name, value in late.items()))
    print(
        f"throttled  {found['throttle_ms']['requests']} answers, {found['throttle_ms']['total_ms']} ms in all"
    )
    if requests["errors"]:
        print(f"errors     {requests['errors']}")


def _whole(path: Path, text: str) -> None:
    """Write a file that is whole when it has its name."""
    unfinished = path.with_name(path.name + ".inprogress")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _address(text: str) -> Broker:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return Broker(host.removeprefix("[").removesuffix("]"), int(port))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
