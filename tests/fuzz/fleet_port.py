"""What a process sends to a fleet's port before it has proven the secret, and what members of the group say."""

import asyncio
from typing import Any, Final

from proxy.fleet.election import Statements, choose
from proxy.fleet.messages import (
    HELLO_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    Frames,
    MessageError,
)
from tests.fuzz.draw import Draw
from tests.fuzz.stopwatch import timed

_SECRET: Final = b"secret"
_SIGNED, _UNSIGNED = Statements(_SECRET, "__sluice"), Statements(b"", "__sluice")
_NONCE: Final = bytes(NONCE_BYTES)
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
        sent += member.proof()
        while draw:
            sent += member.write(draw.take(draw.int16()))
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
        bound = MESSAGE_BYTES_MAX if frames.proven else HELLO_BYTES
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
    """User data of a group's members, each with a byte for its length; and one ruling or commit, the rest."""
    draw = Draw(data)
    claims = {}
    for number in range(draw.byte() % _MEMBERS_MAX):
        member, said = str(number), draw.take(draw.byte())
        assert timed("signed claim", _SIGNED.read_claim, said, member) is None, "it was not signed"
        claim = timed("claim", _UNSIGNED.read_claim, said, member)
        if claim is not None:
            assert _UNSIGNED.read_claim(_UNSIGNED.write_claim(claim, member), member) == claim
            claims[member] = claim
    chosen, ruling = choose(claims)
    assert (chosen is None) == (ruling.address is None), "a holder has an address"
    for statements in (_SIGNED, _UNSIGNED):
        written = statements.write_ruling(ruling, "0", _NONCE, mine=chosen == "0")
        assert statements.read_ruling(written, "0", _NONCE) == (ruling, chosen == "0"), (
            "what is ruled can be read"
        )
    said = draw.rest()
    assert timed("signed ruling", _SIGNED.read_ruling, said, "0", _NONCE) is None, "it was not signed"
    assert timed("commit", _SIGNED.read_lasting, said.decode("latin-1")) is None, "it was not signed"
    found = timed("ruling", _UNSIGNED.read_ruling, said, "0", _NONCE)
    if found is not None:
        written = _UNSIGNED.write_ruling(found[0], "0", _NONCE, mine=found[1])
        assert _UNSIGNED.read_ruling(written, "0", _NONCE) == found, "what is read can be written"
