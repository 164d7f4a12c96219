"""What one direction of a channel has decided over the bytes that it was shown: all that the shell reads of it.

One `Verdict` belongs to a side and is used again for every call, so that a frame costs no object. The machine alone
writes it; the shell alone acts on it, and takes what is given once (a job, an insert, a signal) by the side's verbs.
"""

from typing import Final

__all__ = ["MORE", "PASS", "REFUSE", "REPLACE", "WAIT", "Verdict"]

PASS: Final = 0
MORE: Final = 1
REPLACE: Final = 2
WAIT: Final = 3
# Not handled, nor anything behind it: the channel ends when what it owes has been answered. (4 is `side.WALK`.)
REFUSE: Final = 5


class Verdict:
    """The outcome of `receive`. The first `passing` bytes shown go on; `order` says what comes of the rest.

    Attributes:
        passing: how many of the bytes shown go on, from the first one.
        order: PASS (nothing is left over), MORE, REPLACE, WAIT or REFUSE.
        patches: how many fields of frames that pass were written over in the shell's buffer so far: throttle times,
            session ids, limits, addresses. Where it has not grown, what passes is what was shown, byte for byte.
        unseen: bytes of the current frame that follow and may pass without being looked at.
        need: with MORE, how many bytes from the first kept one there must be before another call can succeed.
        drop, insert: with REPLACE, how many bytes are left out, and what goes in their place.
        until_ms: with WAIT, nothing more is read before; 0: until responses have come, or the side's job is done.
        held: with WAIT, whether a request waits before its payload is read (schedule); else the channel is muted
            (KIP-219).
        signal: something has begun that concerns the other side: a response made here is due, or a mute.
        charged_ahead: the request under way was charged before its bytes came: where they are `late`, no more of it
            passes before `receive` was called again.
    """

    __slots__ = (
        "charged_ahead",
        "drop",
        "held",
        "insert",
        "need",
        "order",
        "passing",
        "patches",
        "signal",
        "unseen",
        "until_ms",
    )

    def __init__(self) -> None:
        self.passing = 0
        self.order = PASS
        self.patches = 0
        self.unseen = 0
        self.need = 0
        self.drop = 0
        self.insert: bytes | bytearray | memoryview = b""
        self.until_ms = 0
        self.held = False
        self.signal = False
        self.charged_ahead = False
