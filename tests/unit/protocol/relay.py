"""Relays a frame through a walk as a connection does: bytes arrive in pieces, records go by without being shown."""

from collections.abc import Sequence

from protocol.messages import AddressMap
from protocol.walks.walk import Walk


def relay(
    walk: Walk, frame: bytes, pieces: Sequence[int], address_map: AddressMap | None, stale: int = 1
) -> bytes:
    """All bytes sent on, when `frame` arrives in pieces of these sizes and the rest in one.

    `stale` is what the buffer holds around the bytes at hand; as a count, 1 says "none", and might be believed.
    """
    around = bytes((stale,)) * 7
    sent = bytearray()
    waiting = bytearray()
    arrived = turn = passthrough = 0
    while len(sent) < len(frame):
        size = pieces[turn] if turn < len(pieces) else len(frame)
        turn += 1
        piece = frame[arrived : arrived + size]
        assert piece, "the walk waits for more than the frame has"
        arrived += len(piece)
        passed = piece[:passthrough]
        sent += passed
        passthrough -= len(passed)
        waiting += piece[len(passed) :]
        if passthrough or walk.done:
            continue
        # Neither what lies before the bytes at hand nor what lies behind them may matter.
        buf = bytearray(around + waiting + around)
        count = walk.feed(memoryview(buf), len(around), len(around) + len(waiting), address_map)
        sent += buf[len(around) : len(around) + count]
        waiting = buf[len(around) + count : len(around) + len(waiting)]
        passthrough = walk.passthrough
        assert not (passthrough and waiting), "bytes that are at hand need no passthrough"
    assert walk.done, "every byte is sent and the walk wants more"
    assert not passthrough
    return bytes(sent)
