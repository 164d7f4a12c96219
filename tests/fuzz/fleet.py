"""Messages between the holder of a fleet and its members, the bytes that come to its port, and what members claim."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from proxy.fleet.election import Statements, choose
from proxy.fleet.facts import Disagreements
from proxy.fleet.messages import (
    HELLO_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    Frames,
    MessageError,
    View,
    read,
    write,
)
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import LeaseRefusedError, Lessor, SessionLostError
from tests.fuzz.draw import Draw
from tests.fuzz.stopwatch import timed

_TERMS: Final = LeaseTerms(15_000, 1000, 4)
_STEP_MS: Final = 4000
_WHOLE: Final = 1.0


def fleet(data: bytes) -> None:
    """Reports at a holder and grants at a member, in turn, each with two bytes for its length."""
    draw = Draw(data)
    lessor = Lessor(_TERMS, 1, lambda _: _WHOLE, 0, 0)
    lessee = Lessee(_TERMS, LesseeId("a", 1), 0)
    now_ms = 0
    while draw:
        step, message = draw.byte(), draw.take(draw.int16())
        if step & 4:
            now_ms += _STEP_MS
        if step & 2:
            lessee.wish({"k": Wish(1.0, 1 + (step >> 4))})
            report = lessee.report(now_ms)
            assert read(write(report)) == report, "what is reported can be read"
        with suppress(MessageError, LeaseRefusedError, SessionLostError):
            found = timed("fleet message", read, message)
            assert read(write(found)) == found, "what is read can be written"
            if isinstance(found, View):
                Disagreements().observe(found, 0)
            elif isinstance(found, Report):
                timed("lessor", lessor.report, found, now_ms)
            elif isinstance(found, Grants):
                lessee.take(found, now_ms)
                lessee.confirm()
        for _, grants in timed("grants", lambda at_ms: list(lessor.grants(at_ms)), now_ms):
            assert read(write(grants)) == grants, "what is granted can be read"
        for key in (DEFAULT_KEY, "k"):
            assert 0 <= lessee.share(key, now_ms) <= 1, "a share is a part of 1"


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
        written = statements.write_ruling([(ruling, chosen == "0")], "0", _NONCE)
        assert statements.read_ruling(written, "0", _NONCE) == [(ruling, chosen == "0")], (
            "what is ruled can be read"
        )
    said = draw.rest()
    assert timed("signed ruling", _SIGNED.read_ruling, said, "0", _NONCE) is None, "it was not signed"
    assert timed("commit", _SIGNED.read_lasting, said.decode("latin-1")) is None, "it was not signed"
    found = timed("ruling", _UNSIGNED.read_ruling, said, "0", _NONCE)
    if found is not None:
        written = _UNSIGNED.write_ruling(found, "0", _NONCE)
        assert _UNSIGNED.read_ruling(written, "0", _NONCE) == found, "what is read can be written"
