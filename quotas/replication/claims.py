"""Claims of throttled replicas on the rates that they count against, and the granting of bytes to them (KIP-73).

All claims of one connection on the same rates share a reservation, so that granted bytes that did not arrive are
returned in one step, for any number of replicas.

Non-obvious:

- The bytes that a Fetch reserved and did not get are returned in one step. All claims of a connection on the same
  rates share a reservation (`quotas/replication/claims.py`), so the end of a response, or of a connection between
  two portions, costs the same with one replica and with 40,000.
- The claim that waits longest is first without a sort: a claim that is granted bytes goes to the end of its
  connection's dict.
"""

from collections.abc import Callable
from typing import Final

from quotas.replication.rates import PacedRate, WindowRate

Rate = WindowRate | PacedRate

# The estimate of a batch before one was seen: the Java producer's batch.size.
BATCH_BYTES: Final = 16_384


class Reservation:
    """The bytes that one Fetch has reserved of the same rates, for any number of replicas.

    Attributes:
        rates: the leader's rate, the follower's, or both.
        number: changes when all bytes are returned; grants with an older number have ended.
    """

    __slots__ = ("_reserved", "number", "rates")

    def __init__(self, rates: tuple[Rate, ...]) -> None:
        self.rates = rates
        self.number = 0
        self._reserved = 0

    def take(self, size: int) -> None:
        """Reserve bytes."""
        self._reserved += size
        for rate in self.rates:
            rate.reserve(size)

    def settle(self, reserved: int, size: int, now_ms: int) -> None:
        """Count arrived bytes, with or without a reservation."""
        self._reserved -= reserved
        for rate in self.rates:
            rate.settle(reserved, size, now_ms)

    def give_back(self, now_ms: int) -> None:
        """Return all reserved bytes: no more of them will arrive."""
        self.number += 1
        if self._reserved:
            self.settle(self._reserved, 0, now_ms)


class Claim:
    """A throttled replica's claim on the rates that it counts against.

    Attributes:
        reservation: the reservation of its rates.
        least: the estimated size of a batch, in bytes; asked for fewer bytes, a leader may send nothing.
    """

    __slots__ = ("_number", "_reserved", "least", "reservation")

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation
        self.least = BATCH_BYTES
        self._reserved = 0
        self._number = 0

    @property
    def reserved(self) -> int:
        """The granted bytes without a response yet."""
        return self._reserved if self._number == self.reservation.number else 0

    def reserve(self, size: int) -> None:
        """Reserve bytes, even if there is no room."""
        self._reserved = size
        self._number = self.reservation.number
        self.reservation.take(size)

    def settle(self, size: int, now_ms: int) -> None:
        """Count arrived bytes, granted or not."""
        reserved = self.reserved
        self._reserved = 0
        self.reservation.settle(reserved, size, now_ms)


class Sharing:
    """Grants bytes to replicas that are behind, one after the other.

    The replica that has waited longest is first. In KIP-73 the order is random, for fairness.

    Args:
        refresh: updates the rates' limits.
        waiting: the number of replicas.
    """

    __slots__ = ("_no_room_from", "_refresh", "_waiting")

    def __init__(self, refresh: Callable[[int], object], waiting: int) -> None:
        self._refresh = refresh
        self._waiting = waiting
        self._no_room_from: dict[Rate, int] = {}  # the smallest size that had no room

    def grant(self, claim: Claim, most: int, now_ms: int) -> int:
        """Grant the next replica at most `most` bytes and reserve them; returns the bytes, 0 to leave it out."""
        self._refresh(now_ms)
        waiting, self._waiting = self._waiting, self._waiting - 1
        least = min(claim.least, most)
        for rate, size in self._no_room_from.items():
            if least >= size and rate in claim.reservation.rates:
                return 0
        granted = self._room(claim, least, most, waiting, now_ms)
        if granted:
            # Whole batches: a leader fills up with the beginning of the next one, which a follower discards.
            granted -= granted % least if granted < most else 0
            claim.reserve(granted)
        return granted

    def _room(self, claim: Claim, least: int, most: int, waiting: int, now_ms: int) -> int:
        for rate in claim.reservation.rates:
            room = rate.room(now_ms)
            # An equal part for each remaining replica, but at least a batch.
            share = most if room is None else min(most, max(least, room // waiting))
            granted = rate.grant(least, share, now_ms)
            if granted < most:
                rate.held_ms = now_ms
            most = granted
            if not most:
                self._no_room_from[rate] = least
                return 0
        return most
