"""What one accuracy run is to do."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.options import DOCUMENT

KAFKA: Final = "kafka"
KIP13: Final = "kip13"
SCHEDULE: Final = "schedule"
POLICIES: Final = (KAFKA, KIP13, SCHEDULE)
DIRECTIONS: Final = ("produce", "consume")
CONNECTIONS: Final = (1, 5, 20)
_SECONDS: Final = 45
_STEADY_AFTER: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The amounts of a run; the defaults are the issue's."""

    policies: tuple[str, ...] = POLICIES
    directions: tuple[str, ...] = DIRECTIONS
    connections: tuple[int, ...] = CONNECTIONS
    seconds: int = _SECONDS
    quota: int = 2_000_000
    write: bool = True
    document: Path = DOCUMENT

    @property
    def steady_after(self) -> float:
        """When the burst is over: after 15 s, or a third of a shorter run."""
        return min(float(_STEADY_AFTER), self.seconds / 3)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy", description=__doc__)
    parser.add_argument("--policies", type=_some(POLICIES), default=POLICIES, help=f"of {','.join(POLICIES)}")
    parser.add_argument(
        "--only", type=_some(DIRECTIONS), default=DIRECTIONS, help=f"of {','.join(DIRECTIONS)}"
    )
    parser.add_argument("--connections", type=_numbers, default=CONNECTIONS, help="default 1,5,20")
    parser.add_argument("--seconds", type=int, default=_SECONDS, help=f"of each run, default {_SECONDS}")
    parser.add_argument(
        "--write", action="store_true", help="write the document even if the run is not complete"
    )
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    given = parser.parse_args(arguments)
    whole = (POLICIES, DIRECTIONS, CONNECTIONS, _SECONDS)
    complete = (given.policies, given.only, given.connections, given.seconds) == whole
    return Options(
        policies=given.policies,
        directions=given.only,
        connections=given.connections,
        seconds=given.seconds,
        write=given.write or complete,
        document=given.document,
    )


def _some(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of some of the known names, which keeps their own order."""

    def names(text: str) -> tuple[str, ...]:
        wanted = {name.strip() for name in text.split(",")}
        if unknown := wanted - set(known):
            raise argparse.ArgumentTypeError(f"no {min(unknown)!r}; there are {', '.join(known)}")
        return tuple(name for name in known if name in wanted)

    return names


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error
