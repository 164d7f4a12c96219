"""What clients are shown of reassignments that Sluice carries out in steps: the one that was asked for (KIP-455).

The shell puts a new mapping here whenever something changes; a channel only looks.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from protocol.messages import reassignments
from protocol.messages.by_partition import Partition
from protocol.messages.reassignments import Ongoing, Stepping

__all__ = ["OngoingMoves", "Shown", "over_steps"]


class Shown(NamedTuple):
    """One move, as it is shown, and its step under way; None while it has none."""

    ongoing: Ongoing
    step: Stepping | None


class OngoingMoves:
    """All of them.

    Attributes:
        moves: by partition; replaced whole.
    """

    __slots__ = ("moves",)

    def __init__(self) -> None:
        self.moves: Mapping[Partition, Shown] = MappingProxyType({})


def over_steps(
    frame: bytes,
    moves: Mapping[Partition, Shown],
    wanted: frozenset[Partition] | None,
    version: int,
    correlation_id: int,
) -> bytes:
    """A broker's whole answer of version 0 with the moves in place of their steps, which it lists; b"" where its own
    will do.

    Args:
        wanted: what was asked for; None for everything.
        version: of the answer; one that has the batch has the steps beside it.

    Raises:
        WireError: it is none.
    """
    found = reassignments.read_answer(frame)
    with_batch = version != reassignments.VERSION
    batch: dict[Partition, Stepping] = {}
    if not found.error_code:
        if not with_batch and not moves:
            return b""
        keys = moves.keys() if wanted is None else moves.keys() & wanted
        shown = {key: moves[key] for key in moves if key in keys}
        ongoing = {**found.ongoing, **{key: one.ongoing for key, one in shown.items()}}
        batch = {key: one.step for key, one in shown.items() if one.step is not None}
        found = found._replace(ongoing=ongoing)
    if found.error_code and not with_batch:
        return b""
    return reassignments.write_answer(found, correlation_id, batch if with_batch else None)
