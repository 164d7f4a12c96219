"""Work that is done in portions (`protocol.primitives`), done at once."""

from typing import TypeVar

from protocol.primitives import Portions

R = TypeVar("R")


def run(work: Portions[R]) -> R:
    """Do all of it."""
    return counted(work)[0]


def counted(work: Portions[R]) -> tuple[R, int]:
    """Do all of it; what it gives, and how many turns of a loop it would take."""
    turns = 1
    while True:
        try:
            next(work)
        except StopIteration as over:
            result: R = over.value
            return result, turns
        turns += 1
