"""What one benchmark run is to do: which sections, how long, and where the table goes."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

DATA_PATH: Final = (
    "produce",
    "consume",
    "small",
    "many",
    "medium",
    "large",
    "latency",
    "idle",
    "clients",
    "metadata",  # last: the broker is slower with ten thousand partitions
)
IDENTITIES: Final = ("entities", "sasl", "tls")
CAPTURED: Final = ("produce", "consume", "small", "latency")
SECTIONS: Final = (*IDENTITIES, *DATA_PATH)
DOCUMENT: Final = Path("docs/benchmarks.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The amounts of a full run; `quick` ones make it fit into two minutes and say little about percentiles."""

    only: frozenset[str] = frozenset(DATA_PATH)
    block: str = "bench"  # of the document
    quick: bool = False
    rounds: int = 5
    gigabytes: float = 1.0
    request_seconds: float = 8.0
    request_connections: int = 4
    latency_seconds: float = 15.0
    latency_rate: float = 500.0
    idle_connections: int = 10_000
    idle_watch_seconds: float = 10.0
    client_ids: int = 100_000
    metadata_topics: int = 100
    metadata_partitions: int = 10_000
    metadata_seconds: float = 8.0
    capture: bool = False  # beside the gateway there is one that writes down what passes, and no other Sluice
    python: str = ""  # the interpreter of one more gateway
    write: bool = True
    document: Path = DOCUMENT


def quick(options: Options) -> Options:
    """Return the amounts for a developer who waits."""
    return replace(
        options,
        quick=True,
        rounds=1,
        gigabytes=0.3,
        request_seconds=1.0,
        latency_seconds=2.0,
        idle_connections=1_000,
        idle_watch_seconds=2.0,
        client_ids=5_000,
        metadata_topics=10,
        metadata_partitions=1_000,
        metadata_seconds=2.0,
    )


def captured(options: Options) -> Options:
    """Return the amounts of a run that measures capture: it takes less than six minutes."""
    return replace(
        options,
        capture=True,
        block="capture",
        rounds=2,
        gigabytes=0.3,
        request_seconds=5.0,
        latency_seconds=6.0,
    )


def sections(text: str) -> frozenset[str]:
    """Return the sections named in `a,b,c`.

    >>> sorted(sections("produce,small"))
    ['produce', 'small']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"no section {name!r}; there are {', '.join(SECTIONS)}")
    return frozenset(names)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="under two minutes: one short round of everything"
    )
    parser.add_argument(
        "--identities", action="store_true", help="clients who say who they are, in place of the data path"
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="the data path through a Sluice that captures every request, beside one that does not",
    )
    parser.add_argument("--only", type=sections, help=f"of {','.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, help="how often every lane takes its turn (default 5, quick 1)")
    parser.add_argument(
        "--python",
        default="",
        metavar="FILE",
        help="one more gateway, run by this interpreter, which needs the packages of requirements/run.txt",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the document even if the run is not complete"
    )
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    given = parser.parse_args(arguments)
    if given.identities and given.capture:
        parser.error("--identities and --capture are runs of their own")
    if given.python and (given.capture or given.identities):
        parser.error("--python is for the data path")
    whole = frozenset(IDENTITIES if given.identities else CAPTURED if given.capture else DATA_PATH)
    only = whole if given.only is None else given.only
    # A part of a run must not replace the table of a whole one unasked.
    write = given.write or (not given.quick and only == whole)
    block = "identities" if given.identities else "bench"
    options = Options(only=only, block=block, python=given.python, write=write, document=given.document)
    if given.capture:
        options = captured(options)
    if given.quick:
        options = quick(options)
    return options if given.rounds is None else replace(options, rounds=max(1, given.rounds))
