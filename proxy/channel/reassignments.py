"""The reassignments in steps (KIP-435) as clients see them: with the requested target (KIP-455).

The shell replaces the mapping whenever it changes; channels only read it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from protocol.messages import reassignments
from protocol.messages.reassignments import Ongoing, Stepping
from protocol.messages.replica_session import Partition


class ShownMove(NamedTuple):
    """One move as clients see it, and its current step; None if it has none."""

    ongoing: Ongoing
    step: Stepping | None


class OngoingMoves:
    """All moves.

    Attributes:
        moves: by partition; the mapping is replaced as a whole.
    """

    __slots__ = ("moves",)

    def __init__(self) -> None:
        self.moves: Mapping[Partition, ShownMove] = MappingProxyType({})


def merge_moves(
    frame: bytes,
    moves: Mapping[Partition, ShownMove],
    wanted: frozenset[Partition] | None,
    version: int,
    correlation_id: int,
) -> bytes:
    """Return a broker's response of version 0 with the moves in place of their steps; b"" if it can be used unchanged.

    Args:
        wanted: the requested partitions; None for all.
        version: of the response; a version with batches also contains the steps.

    Raises:
        WireError: the frame is not such a response.
    """
    found = reassignments.read_list_response(frame)
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
    return reassignments.write_list_response(found, correlation_id, batch if with_batch else None)
