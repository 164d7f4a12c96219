"""What both directions of a channel share: the order they give, and the count of bytes that need not be
looked at.
"""

from abc import ABC, abstractmethod
from typing import Final

from protocol.errors import TruncatedError
from protocol.messages.walk import Walk
from protocol.primitives import skip_tags
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer
from proxy.channel.settings import WHOLE_FRAME_BYTES_MAX
from proxy.channel.state import ChannelState

__all__ = ["MORE", "PASS", "REPLACE", "SHOWN", "WAIT", "WALK", "Side", "skip_header_tags"]

PASS: Final = 0
MORE: Final = 1
REPLACE: Final = 2
WAIT: Final = 3
# Inside the package only: the frame is walked (`Side.walk`), because addresses may stand at its end, or because its
# topics have quotas.
WALK: Final = 4
# In place of the number of unseen bytes: a request is under way whose rest has to be shown.
SHOWN: Final = -1


class Side(ABC):
    """One direction of a channel. The shell reads these fields after each `receive`.

    Attributes:
        order: PASS, MORE, REPLACE or WAIT.
        unseen: bytes of the current frame that follow and may pass without being looked at; below 0: a frame is under
            way, and has to be looked at.
        need: with MORE, how many bytes from the first kept one there must be before another call can succeed.
        drop, insert: with REPLACE.
        wait_until_ms, held: with WAIT; held tells a request that waits before its payload is read (schedule) from a
            muted channel (KIP-219). 0 as the time: until answers have come (too many requests in flight).
        signal: something has begun that concerns the other side: an answer made here is due, or a mute; the shell acts
            on it after the bytes it has, and clears it.
        moved_ns: when the source last got further than a frame's head: a part of a large frame has passed, or what
            waited to be written was. For the answers' side also when the last answer that is measured began, or the
            broker was connected: from then on it can be busy with the next request.
        frame_bytes: size of the answer that is being decided on, its prefix included.
        walk: the walk through the frame under way; None where it is none that is walked.
        walk_answered: whether an answer is owed to the request that is walked.
    """

    __slots__ = (
        "drop",
        "frame_bytes",
        "held",
        "insert",
        "moved_ns",
        "need",
        "order",
        "signal",
        "state",
        "unseen",
        "wait_until_ms",
        "walk",
        "walk_answered",
    )

    def __init__(self, state: ChannelState) -> None:
        self.state = state
        self.order = PASS
        self.moved_ns = 0
        self.unseen = 0
        self.need = 0
        self.drop = 0
        self.frame_bytes = 0
        self.insert: bytes | bytearray | memoryview = b""
        self.wait_until_ms = 0
        self.held = False
        self.signal = False
        self.walk: Walk | None = None
        self.walk_answered = False

    @abstractmethod
    def receive(self, buf: Buffer, start: int, end: int, now_ms: int) -> int:
        """Decide over buf[start:end]; see the package docstring for what the result and `order` mean."""

    def past_unseen(self, start: int, end: int) -> int:
        """Where in buf[start:end] the bytes end that may pass unlooked; they are counted off."""
        count = min(self.unseen, end - start)
        self.unseen -= count
        self.moved_ns = self.state.now_ns
        return start + count

    def passed(self, count: int) -> None:
        """The shell has passed `count` of the unseen bytes on."""
        self.unseen -= count
        self.moved_ns = self.state.now_ns

    def more(self, have: int, length: int) -> int:
        """Order MORE of a frame that has announced `length` bytes and of which `have` are here, its prefix included.

        Raises:
            PeerError: the frame is all here, so its contents end before they should.
        """
        if have >= length + 4:
            raise PeerError("malformed", f"a frame of {length} bytes ends before its contents do")
        self.need = min(length + 4, 2 * have + 64)
        self.order = MORE
        return MORE

    def whole(self, have: int, length: int) -> bool:
        """Whether a frame that has to be seen whole is; if not, the order is MORE.

        Raises:
            PeerError: such a frame is larger than any that is kept in memory.
        """
        if have >= length + 4:
            return True
        if length > WHOLE_FRAME_BYTES_MAX:
            raise PeerError(
                "frame_length", f"control message of {length} bytes, at most {WHOLE_FRAME_BYTES_MAX} are kept"
            )
        self.need = length + 4
        self.order = MORE
        return False

    def replace(self, drop: int, insert: bytes | bytearray | memoryview, unseen: int = 0) -> int:
        """Order REPLACE: leave `drop` bytes out, put `insert` there; then `unseen` bytes of the frame pass unlooked."""
        self.drop = drop
        self.insert = insert
        self.unseen = unseen
        self.order = REPLACE
        return REPLACE

    def wait(self, until_ms: int, *, held: bool) -> int:
        """Order WAIT until `until_ms`."""
        self.wait_until_ms = until_ms
        self.held = held
        self.order = WAIT
        return WAIT


def skip_header_tags(buf: Buffer, pos: int, end: int, *, flexible: bool = True) -> int | None:
    """Where a request's fields begin, given where its client id ends; None when `end` comes before that."""
    if not flexible:
        return pos
    if pos < end and not buf[pos]:
        return pos + 1  # no tags, as in every client known
    try:
        return skip_tags(buf, pos, end)
    except TruncatedError:
        return None
