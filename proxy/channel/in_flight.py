"""Answers owed on a channel, oldest first: Kafka answers in request order, and so does Sluice.

One entry is a plain tuple, the only object made for an ordinary request:
    (correlation id, responder, version, detail)
The responder is None where the answer passes as it is; where it is `LOCAL`, `detail` is the answer itself.
Where the correlation id is `RAW_TOKEN` the answer is a SASL token without a Kafka header, and there may be none.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LOCAL", "RAW_TOKEN", "Buffer", "Entry", "InFlight", "Responder"]

Buffer = bytearray

# A responder decides over an answer that starts at a position of a buffer: (side, buf, pos, end, entry,
# now_ms) -> 0 to pass it, or an order. `Any`: the side's own type would be a cycle, and the detail is what
# the same module put there.
Responder = Callable[[Any, Buffer, int, int, Any, int], int]
Entry = tuple[int, Responder | None, int, Any]
InFlight = deque[Entry]


def _never_called(_side: Any, _buf: Buffer, _pos: int, _end: int, _entry: Any, _now_ms: int) -> int:
    raise AssertionError("a local answer has no broker's frame")


LOCAL: Final[Responder] = _never_called

RAW_TOKEN: Final = 1 << 40  # no int32: no answer with a correlation id can be taken for it
