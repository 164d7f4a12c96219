"""What clients are shown of reassignments that Sluice carries out in steps: the one that was asked for (KIP-455).

The shell puts a new mapping here whenever something changes; a channel only looks.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from protocol.messages.by_partition import Partition
from protocol.messages.reassignments import Ongoing, Reassignments, Stepping

__all__ = ["OngoingMoves", "Shown"]


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

    def over(
        self, found: Reassignments, wanted: frozenset[Partition] | None
    ) -> tuple[Reassignments, dict[Partition, Stepping]]:
        """Put the moves in place of their steps, which the brokers list; give the steps beside it."""
        moves = self.moves
        keys = moves.keys() if wanted is None else moves.keys() & wanted
        shown = {key: moves[key] for key in moves if key in keys}
        ongoing = {**found.ongoing, **{key: one.ongoing for key, one in shown.items()}}
        batch = {key: one.step for key, one in shown.items() if one.step is not None}
        return found._replace(ongoing=ongoing), batch
