"""Sums over the last 10 seconds, minute and quarter of an hour, of bounded size."""

from array import array
from collections.abc import Iterator
from typing import Final

TEN_SECONDS: Final = 0
MINUTE: Final = 1
QUARTER: Final = 2
SECONDS: Final = (10, 60, 900)
# Of each window: the length of a slot in ms, the number of slots, and the first one's place.
_RINGS: Final = ((2_000, 5, 0), (10_000, 6, 5), (60_000, 15, 11))
_SLOTS: Final = 26
LONG_SLOTS_MS: Final = tuple((window, _RINGS[window][0]) for window in (MINUTE, QUARTER))  # of 10 s or longer


class Windows:
    """Sums of several amounts.

    A window ends now, and is up to one slot shorter than its name: a fifth of 10 s, a sixth of a minute, a fifteenth of
    a quarter of an hour.

    Args:
        width: the number of amounts.
        typecode: the type code of their array: "f" takes half the memory of "d".

    >>> windows = Windows(2)
    >>> windows.add(0, 5.0, now_ms=1_000)
    >>> windows.add(1, 7.0, now_ms=9_000)
    >>> windows.sums(TEN_SECONDS, 9_500), windows.sums(TEN_SECONDS, 12_000), windows.sums(MINUTE, 12_000)
    ([5.0, 7.0], [0.0, 7.0], [5.0, 7.0])
    """

    __slots__ = ("_numbers", "_sums", "_width")

    def __init__(self, width: int, typecode: str = "d") -> None:
        self._width = width
        self._sums = array(typecode, [0.0]) * (width * _SLOTS)
        self._numbers = [0] * len(_RINGS)  # of each ring: its present slot, counted from time 0

    def add(self, index: int, amount: float, now_ms: int) -> None:
        """Add to one amount."""
        for ring, (slot_ms, count, first) in enumerate(_RINGS):
            number = now_ms // slot_ms
            if number != self._numbers[ring]:
                self._advance(ring, number)
            self._sums[(first + number % count) * self._width + index] += amount

    def sums(self, window: int, now_ms: int) -> list[float]:
        """Return all amounts' sums over a window: TEN_SECONDS, MINUTE or QUARTER."""
        slot_ms, count, first = _RINGS[window]
        self._advance(window, now_ms // slot_ms)
        width = self._width
        begin, end = first * width, (first + count) * width
        return [sum(self._sums[begin + index : end : width]) for index in range(width)]

    def slots(self, window: int, now_ms: int, since_ms: int = 0) -> Iterator[list[float]]:
        """Yield all amounts of each slot of a window that begins at `since_ms` or later, the present one first."""
        slot_ms, count, first = _RINGS[window]
        number = now_ms // slot_ms
        self._advance(window, number)
        width = self._width
        for one in range(number, max(number - count, -(-since_ms // slot_ms) - 1), -1):
            begin = (first + one % count) * width
            yield list(self._sums[begin : begin + width])

    @staticmethod
    def length_ms(window: int, now_ms: int, since_ms: int = 0) -> int:
        """Return the time up to now of the slots that `slots` yields, with the present ms; 0 without any."""
        slot_ms, count, _ = _RINGS[window]
        earliest = max(now_ms // slot_ms - count + 1, -(-since_ms // slot_ms))
        return max(0, now_ms + 1 - earliest * slot_ms)

    def _advance(self, ring: int, number: int) -> None:
        """Empty the slots that have begun since the last call."""
        _, count, first = _RINGS[ring]
        width = self._width
        last = self._numbers[ring]
        for new in range(max(last + 1, number - count + 1), number + 1):
            at = (first + new % count) * width
            for index in range(at, at + width):
                self._sums[index] = 0.0
        self._numbers[ring] = max(last, number)
