"""What all attacks on the process and on other clients have in common: one figure, and the most that it may be."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.hostile.scene import Scene, Stage, staged


@dataclass(frozen=True, slots=True)
class Row:
    """One attack as the table shows it.

    Args:
        name: of the test.
        finding: its number in issue 14; 26: an issue of its own.
        what: the attack, in words.
        unit: of the figure.
        bar: the most that it may be.
    """

    name: str
    finding: int
    what: str
    unit: str
    bar: float


@dataclass(frozen=True, slots=True)
class Harm:
    """One attack in a scene of its own; `run` does it and returns the figure."""

    row: Row
    run: Callable[[], float]


def measure(harms: Iterable[Harm], names: Collection[str] = ()) -> Mapping[str, float]:
    """Run them, or those with these names, one after the other; the figures by name."""
    return {harm.row.name: harm.run() for harm in harms if not names or harm.row.name in names}


def ended(scene: Scene) -> bool:
    """Whether the process has ended, or does not serve."""
    if not scene.sluice.alive():
        return True
    try:
        return scene.sluice.get("/healthz")[0] != 200
    except OSError:
        return True


@contextlib.contextmanager
def survivor(stage: Stage) -> Iterator[Scene]:
    """A scene whose process may have ended by itself: that is a figure, and no error."""
    with staged(stage, may_end=True) as scene:
        yield scene
