"""What one benchmark run is to do: which sections, how long, and whether the table is kept."""

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

DATA_PATH: Final = (
    *("produce", "consume", "small", "many", "medium", "large", "latency"),
    *("idle", "clients", "metadata"),  # metadata last: the broker is slower with ten thousand partitions
)
IDENTITIES: Final = ("entities", "sasl", "tls")
CAPTURED: Final = ("produce", "consume", "small", "latency")
DOCUMENT: Final = Path("docs/benchmarks.md")
SECTIONS: Final = (*IDENTITIES, *DATA_PATH)


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


QUICK: Final = {
    "quick": True,
    "rounds": 1,
    "gigabytes": 0.3,
    "request_seconds": 1.0,
    "latency_seconds": 2.0,
    "idle_connections": 1_000,
    "idle_watch_seconds": 2.0,
    "client_ids": 5_000,
    "metadata_topics": 10,
    "metadata_partitions": 1_000,
    "metadata_seconds": 2.0,
}
# It takes less than six minutes.
_CAPTURE: Final = {
    "capture": True,
    "rounds": 2,
    "gigabytes": 0.3,
    "request_seconds": 5.0,
    "latency_seconds": 6.0,
}


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
    flag = partial(parser.add_argument, action="store_true")
    flag("--quick", help="under two minutes: one short round of everything")
    flag("--identities", help="clients who say who they are, in place of the data path")
    flag("--capture", help="the data path through a Sluice that captures, beside one that does not")
    flag("--write", help="write the document even if the run is not complete")
    parser.add_argument("--only", type=sections, help=f"of {','.join(SECTIONS)}")
    parser.add_argument(
        "--python",
        default="",
        metavar="FILE",
        help="one more gateway, run by this interpreter, which needs the packages of requirements/run.txt",
    )
    given = parser.parse_args(arguments)
    if given.identities and given.capture:
        parser.error("--identities and --capture are runs of their own")
    if given.python and (given.capture or given.identities):
        parser.error("--python is for the data path")
    block: str = "bench"
    parts: tuple[str, ...] = DATA_PATH
    if given.identities:
        block, parts = "identities", IDENTITIES
    if given.capture:
        block, parts = "capture", CAPTURED
    whole = frozenset(parts)
    only = whole if given.only is None else given.only
    # A part of a run must not replace the table of a whole one unasked.
    write = given.write or (not given.quick and only == whole)
    amounts: dict[str, Any] = (_CAPTURE if given.capture else {}) | (QUICK if given.quick else {})
    return Options(only=only, block=block, python=given.python, write=write, **amounts)


def check_known(
    parser: argparse.ArgumentParser, what: str, given: Collection[str], known: Collection[str]
) -> None:
    """End the program with an error if a name was given that is not known."""
    if unknown := set(given) - set(known):
        parser.error(f"no {what} {min(unknown)!r}; there are {', '.join(known)}")
