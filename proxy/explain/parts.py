"""The parts that a connection's time is divided into; they add up to the whole.

If two are true at once, the first in this order counts:

    held     a request waits before its payload is read, for its slot (`schedule`)
    muted    the channel is muted (KIP-219)
    client   the client is slow: it does not read its responses, or has sent a request only in part
    sluice   a request or response is in Sluice: it is parsed, handled by another part, or waits for the event loop
    broker   a broker has the request
    poll     a broker has the request, and it may wait: a Fetch for its min_bytes, a member for its group
    idle     there is no request
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from commandline.amounts import rate as byte_rate
from quotas.definitions.kinds import BY_NAME, BYTES

_Key = TypeVar("_Key")

HELD: Final = 0
MUTED: Final = 1
SLUICE: Final = 2
BROKER: Final = 3
POLL: Final = 4
CLIENT: Final = 5
IDLE: Final = 6
NAMES: Final = ("held", "muted", "sluice", "broker", "poll", "client", "idle")


# ----------------------------------------------------------------------------------------------------
# Sums over the last 10 seconds, minute and quarter of an hour, of bounded size.


TEN_SECONDS: Final = 0
MINUTE: Final = 1
QUARTER: Final = 2
SECONDS: Final = (10, 60, 900)
# Of each window: the length of a slot in ms, the number of slots, and the first one's place.
_RINGS: Final = ((2_000, 5, 0), (10_000, 6, 5), (60_000, 15, 11))
_SLOTS: Final = 26
LONG_SLOTS_MS: Final = tuple((window, _RINGS[window][0]) for window in (MINUTE, QUARTER))  # of 10 s or longer


class Windows:
    """Sums of several amounts over the last 10 s, minute and quarter of an hour.

    A window ends now, and consists of slots of 2 s (of the 10 s), 10 s (of the minute) or 60 s (of the quarter). The
    present slot is not complete, so a window is up to one slot shorter than its name.

    Args:
        width: the number of amounts that are summed separately, each with an index.
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
        """Add `amount` to the sums with this index, in the present slot of each window."""
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
        """Yield the sums of each slot of a window, the present slot first; slots before `since_ms` are left out."""
        slot_ms, count, first = _RINGS[window]
        number = now_ms // slot_ms
        self._advance(window, number)
        width = self._width
        for one in range(number, max(number - count, -(-since_ms // slot_ms) - 1), -1):
            begin = (first + one % count) * width
            yield list(self._sums[begin : begin + width])

    @staticmethod
    def length_ms(window: int, now_ms: int, since_ms: int = 0) -> int:
        """Return the time in ms that the slots from `slots` cover until now; 0 if `slots` yields none.

        The arguments are those of `slots`. The present slot counts only up to `now_ms`.
        """
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


def summed(amounts: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    """Add up amounts by key.

    >>> summed([("a", 1.0), ("b", 2.0), ("a", 3.0)])
    {'a': 4.0, 'b': 2.0}
    """
    found: dict[_Key, float] = {}
    for key, one in amounts:
        found[key] = found.get(key, 0.0) + one
    return found


# ----------------------------------------------------------------------------------------------------
# Formats amounts for sentences: a limit with its unit, a time, a part.


def amount(kind: str, value: float) -> str:
    """Return a limit or rate with the unit of its kind of quota; without one if this version does not know the kind.

    >>> amount("produce", 2e6), amount("request", 12.5), amount("mutation", 5), amount("new", 2.5)
    ('2.0 MB/s', '12.5 %', '5 partitions/s', '2.5')
    """
    known = BY_NAME.get(kind)
    if known is None:
        return f"{value:g}"
    return byte_rate(value) if known.unit is BYTES else f"{value:.3g} {known.unit.name}"


def time_text(ms: float) -> str:
    """Return a time with its unit, as text.

    >>> time_text(0.42), time_text(12.3), time_text(1900)
    ('0.4 ms', '12 ms', '1.9 s')
    """
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def part_text(part: float) -> str:
    """Return a share (0 to 1) in percent; only 1 is shown as 100 %, and only 0 as 0 %.

    >>> part_text(0.62), part_text(0.999), part_text(0.004), part_text(1)
    ('62%', 'over 99%', 'under 1%', '100%')
    """
    if 0.995 <= part < 1:
        return "over 99%"
    return "under 1%" if 0 < part < 0.005 else f"{part:.0%}"
