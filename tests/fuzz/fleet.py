"""Messages between the holder of a fleet and its members."""

from contextlib import suppress
from typing import Final

from proxy.fleet.facts import Disagreements
from proxy.fleet.messages import MessageError, View, read, write
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
