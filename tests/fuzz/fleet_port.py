"""What a process sends to a fleet's port before it has proven the secret, and what members of the group say."""

import asyncio
from typing import Any, Final

from proxy.fleet.codec import MESSAGE_BYTES_MAX, MessageError, head
from proxy.fleet.frames import FIRST_BYTES_MAX, SIGNATURE_BYTES, Frames
from proxy.fleet.standing import choose, read_claim, read_ruling, write_claim, write_ruling
from tests.fuzz.draw import Draw
from tests.fuzz.stopwatch import timed

__all__ = ["fleet_claims", "fleet_frames"]

_SECRET: Final = b"secret"
_MEMBERS_MAX: Final = 8


class _NoLoop:
    """Stands in for a loop: nothing is waited for, since all bytes and their end are there."""

    def get_debug(self) -> bool:
        return False


def fleet_frames(data: bytes) -> None:
    """A connection's bytes to a holder; with the first one odd, by a process that knows the secret."""
    draw = Draw(data)
    knows = draw.byte() & 1
    holder = Frames(_SECRET, holder=True)
    sent = b""
    if knows:
        member = Frames(_SECRET, holder=False)
        sent += member.hello()
        member.greet(holder.hello()[4:])
        while draw:
            message = draw.take(draw.int16())
            sent += member.write(head(draw.byte()) + message)
    else:
        sent = draw.rest()
    found = timed("fleet frames", _received, holder, sent)
    assert knows or not found, "nothing is taken from a process that does not know the secret"


def _received(frames: Frames, sent: bytes) -> list[bytes]:
    """Return the messages that a holder takes."""
    reader = asyncio.StreamReader(loop=_loop())
    reader.feed_data(sent)
    reader.feed_eof()
    found: list[bytes] = []
    while True:
        most = frames.bytes_max
        # A hello may have been recorded, so it proves nothing.
        bound = MESSAGE_BYTES_MAX if found else FIRST_BYTES_MAX
        assert most <= SIGNATURE_BYTES + bound, "little is read before the secret is proven"
        try:
            frames.receive(reader).send(None)
        except StopIteration as stop:
            if stop.value:
                found.append(stop.value)
        except (MessageError, asyncio.IncompleteReadError):
            return found


def _loop() -> Any:
    return _NoLoop()


def fleet_claims(data: bytes) -> None:
    """User data of a group's members, each with a byte for its length; and one ruling, the rest."""
    draw = Draw(data)
    claims = {}
    for member in range(draw.byte() % _MEMBERS_MAX):
        claim = timed("claim", read_claim, draw.take(draw.byte()))
        if claim is not None:
            assert read_claim(write_claim(claim)) == claim, "what is read can be written"
            claims[str(member)] = claim
    chosen, ruling = choose(claims)
    assert (chosen is None) == (ruling.address is None), "a holder has an address"
    if ruling.term < 2**64:
        assert read_ruling(write_ruling(ruling)) == ruling, "what is ruled can be read"
    said = draw.rest()
    found = read_ruling(said)
    assert found is None or read_ruling(write_ruling(found)) == found, "what is read can be written"
