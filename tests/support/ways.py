"""The product's files and functions that one request goes through, as Python enters them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# One read of many is timed, by chance: it is no part of the way.
SAMPLED: Final = "Stats.observe_latency"
PRODUCT: Final = tuple(f"{ROOT / name}/" for name in ("protocol", "quotas", "proxy"))


@dataclass
class Way:
    """What was entered, in the order of the first entries."""

    functions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """The files, each once, relative to the repository."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    def __str__(self) -> str:
        named = {
            file: [name for place, name in dict.fromkeys(self.functions) if place == file]
            for file in self.files
        }
        return "\n".join(
            f"{index:>3} {file}: {', '.join(names)}" for index, (file, names) in enumerate(named.items(), 1)
        )


@contextmanager
def entered(way: Way | None = None) -> Iterator[Way]:
    """Note every call of the product in this thread while the block runs, in a given way or in a new one."""
    way = Way() if way is None else way

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PRODUCT) and code.co_qualname != SAMPLED:
            file = code.co_filename.removeprefix(f"{ROOT}/")
            way.functions.append((file, code.co_qualname))

    sys.setprofile(note)
    try:
        yield way
    finally:
        sys.setprofile(None)
