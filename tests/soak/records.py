"""What a numbered record is, and what a topic's records say of the clients that wrote them; no socket, no clock.

Each producer numbers the records of each partition by itself: 0, 1, 2, … With idempotence they must stand in the
partition in that order, each once; an acknowledged one that is missing is lost.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

RECORD_BYTES: Final = 500
_EXAMPLES_MAX: Final = 20
Key = tuple[int, int]
"""Producer, partition."""
_HEAD: Final = struct.Struct(">iq")
_FILL: Final = bytes(RECORD_BYTES - _HEAD.size)


def record(producer: int, number: int) -> bytes:
    """Return the value of one record."""
    return _HEAD.pack(producer, number) + _FILL


@dataclass(slots=True)
class Tally:
    """Counts how often each record was seen, and whether in order.

    >>> tally = Tally()
    >>> for number in (0, 1, 3, 2, 2):
    ...     tally.see(0, record(7, number))
    >>> tally.doubled, tally.disordered, list(tally.seen[7, 0])
    (1, 1, [1, 1, 1, 1])
    >>> tally.examples
    ['producer 7, partition 0: 2 late, behind 3', 'producer 7, partition 0: 2 again, behind 3']
    """

    seen: dict[Key, bytearray] = field(default_factory=dict)
    records: int = 0
    doubled: int = 0
    disordered: int = 0
    examples: list[str] = field(default_factory=list)
    _last: dict[Key, int] = field(default_factory=dict)

    def see(self, partition: int, value: bytes) -> None:
        """Note one record of a partition, in the order of its log."""
        producer, number = _HEAD.unpack_from(value)
        key = (producer, partition)
        found = self.seen.setdefault(key, bytearray())
        if number >= len(found):
            found.extend(bytes(number + 1 - len(found)))
        last = self._last.get(key, -1)
        self.records += 1
        if found[number]:
            self.doubled += 1
            self._note(key, f"{number} again, behind {last}")
        elif number < last:
            self.disordered += 1
            self._note(key, f"{number} late, behind {last}")
        found[number] = 1
        self._last[key] = max(number, last)

    def _note(self, key: Key, what: str) -> None:
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(f"producer {key[0]}, partition {key[1]}: {what}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the acknowledged records."""

    acknowledged: int
    lost: int
    doubled: int
    disordered: int
    examples: tuple[str, ...] = ()


def verdict(sent: Mapping[Key, int], failed: Mapping[Key, Iterable[int]], tally: Tally) -> Verdict:
    """Compare what producers were told with what was seen; `failed` were not acknowledged.

    >>> tally = Tally()
    >>> for number in (0, 2):
    ...     tally.see(0, record(1, number))
    >>> verdict({(1, 0): 4}, {(1, 0): [1]}, tally)
    Verdict(acknowledged=3, lost=1, doubled=0, disordered=0, examples=())
    """
    acknowledged = lost = 0
    for key, count in sent.items():
        unsure = set(failed.get(key, ()))
        acknowledged += count - len(unsure)
        found = tally.seen.get(key, bytearray())
        missing = [number for number in range(count) if number >= len(found) or not found[number]]
        lost += len(set(missing) - unsure)
    return Verdict(acknowledged, lost, tally.doubled, tally.disordered, tuple(tally.examples))
