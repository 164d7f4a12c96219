"""The common part of both directions of a channel: verdicts, and work on one frame that continues later."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from protocol import header
from protocol.errors import TruncatedError
from protocol.walks.walk import TOPIC_SIZE_BYTES, Walk
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer
from proxy.channel.parsing import AGAIN, AT_ONCE_BYTES_MAX, Job
from proxy.channel.state import ChannelState
from proxy.channel.verdict import MORE, REFUSE, REPLACE, WAIT, Verdict
from quotas.limiters.flow import Flow

# Used inside this package only: the frame is walked (`ChannelDirection.walk`), because addresses may be at its end, or
# because its topics have quotas.
WALK: Final = 4
# The common bit of MORE, WAIT and REFUSE: the frame was not passed.
UNDECIDED: Final = 1
NS_PER_MS: Final = 1_000_000

T = TypeVar("T")


class ChannelDirection(ABC):
    """One direction of a channel. `proxy.channel.contract` defines its interface for the shell.

    Attributes:
        verdict: read by the shell after each `receive`.
        moved_ns: when the source last made progress beyond a frame's head: a part of a large frame has passed, or
            pending output was written. In the response direction also when the last measured response began, or the
            broker was connected: from then on the broker can be busy with the next request.
        frame_bytes: the size of the response being decided on, with its length prefix.
        walk: the walk through the frame under way; None if it is not walked.
        response_owed: whether the walked Produce, or the one whose bytes are still to come, is owed a response.
        job: with WAIT, the job that the shell takes from here and runs first (`proxy.channel.parsing`). The response
            direction waits for no other reason.
    """

    __slots__ = (
        "_charged_flow",
        "_parsing",
        "frame_bytes",
        "job",
        "moved_ns",
        "response_owed",
        "state",
        "verdict",
        "walk",
    )

    def __init__(self, state: ChannelState) -> None:
        self.state = state
        self.verdict = Verdict()
        self.moved_ns = 0
        self.frame_bytes = 0
        self.walk: Walk | None = None
        self.response_owed = False
        self._charged_flow: Flow | None = None
        self.job: Job | None = None
        self._parsing: Job | None = None  # the job whose result is awaited

    # The cause of the error for frames that are too long.
    too_long: ClassVar[str]

    @abstractmethod
    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Decide on buf[start:end], read at `now_ns`."""

    def mid_frame(self) -> bool:
        """Whether a frame is partly forwarded."""
        return self.verdict.passthrough > 0 or self.walk is not None

    def recharge_due(self, now_ms: int) -> bool:  # noqa: ARG002 - requests are
        """Whether the frame under way must be decided on again before more of it is forwarded."""
        return False

    def skip_passthrough(self, start: int, end: int) -> int:
        """Return where in buf[start:end] the passthrough bytes end, and count them as passed."""
        count = min(self.verdict.passthrough, end - start)
        self.verdict.passthrough -= count
        self.moved_ns = self.state.now_ns
        return start + count

    def passed(self, count: int, now_ns: int) -> None:
        """Report that `count` of the passthrough bytes were forwarded."""
        self.verdict.passthrough -= count
        self.moved_ns = now_ns

    def moved(self, now_ns: int) -> None:
        """Report that the source is connected, or that the destination has taken pending output."""
        self.moved_ns = now_ns

    def order_more(self, have: int, length: int) -> int:
        """Order MORE of a frame of `length` bytes of which `have` have arrived, its prefix included.

        Raises:
            PeerError: the frame is complete, so its fields end too early.
        """
        if have >= length + 4:
            raise PeerError("malformed", f"a frame of {length} bytes ends before its contents do")
        self.verdict.need = min(length + 4, 2 * have + 64)
        self.verdict.order = MORE
        return MORE

    def order_more_until(self, need: int) -> int:
        """Order MORE until `need` bytes of the frame have arrived, its prefix included."""
        self.verdict.need = need
        self.verdict.order = MORE
        return MORE

    def whole(self, have: int, length: int, most: int) -> bool:
        """Whether a frame that must be complete has arrived completely; if not, the order is MORE.

        Args:
            have: the number of bytes that have arrived, the prefix included.
            length: the frame's length, the prefix included.
            most: the longest such frame (`proxy.channel.bounds`).

        Raises:
            PeerError: the frame is longer.
        """
        if length > most:
            raise PeerError(self.too_long, f"a message of {length} bytes, at most {most} are kept")
        if have >= length + 4:
            return True
        self.verdict.need = length + 4
        self.verdict.order = MORE
        return False

    def parse(self, function: Callable[..., T], frame: bytes, *arguments: Any, weight: int = 0) -> T | None:
        """Return `function(frame, *arguments)`; None with an order while it runs in a thread.

        `proxy.channel.parsing` defines the permitted functions, and what a caller may do before.

        Args:
            weight: bytes to add to the frame's size for the arguments.

        Raises:
            WireError: the function raised it.
        """
        if len(frame) + weight <= AT_ONCE_BYTES_MAX:
            return function(frame, *arguments)
        job = self._parsing
        if job is None or not job.matches(function, (frame, *arguments)):
            job = self._parsing = self.job = Job(function, (frame, *arguments))
        if not job.done:
            self.wait(0, held=False)
            return None
        self._parsing = None
        parsed: T = job.result()
        return parsed

    def next_turn(self) -> int:
        """Order that the shell passes the rest again in the next turn of the loop."""
        self.job = AGAIN
        return self.wait(0, held=False)

    @property
    def kept_bytes(self) -> int:
        """The memory used in addition to the frame, in bytes: that of a job and of a walk."""
        kept = 0 if self._parsing is None else self._parsing.kept_bytes
        if self.walk is not None and self.walk.sizes:
            kept += len(self.walk.sizes) * TOPIC_SIZE_BYTES
        return kept

    def charge_ahead(self, flow: Flow | None) -> None:
        """Note the flow that is charged for the request under way before its bytes arrive; None to stop."""
        self._charged_flow = flow
        self.verdict.charged_ahead = flow is not None

    def take_signal(self) -> bool:
        """Return whether an event concerns the other direction, and clear the signal."""
        signal, self.verdict.signal = self.verdict.signal, False
        return signal

    def take_insert(self) -> bytes | bytearray | memoryview:
        """Return the bytes that REPLACE inserts, once; from then on the shell counts them."""
        insert, self.verdict.insert = self.verdict.insert, b""
        return insert

    def take_job(self) -> Job | None:
        """Return the job that the shell must run before it passes the rest again, once."""
        job, self.job = self.job, None
        return job

    def replace(self, drop: int, insert: bytes | bytearray | memoryview, passthrough: int = 0) -> int:
        """Order REPLACE: drop `drop` bytes, send `insert` instead; then pass `passthrough` bytes of the frame."""
        self.verdict.drop = drop
        self.verdict.insert = insert
        self.verdict.passthrough = passthrough
        self.verdict.order = REPLACE
        return REPLACE

    def refuse(self, label: str) -> int:
        """Order REFUSE for a Produce that was held for the longest time; `label` is its kind in the counters."""
        self.state.stats.produce_refused[label] += 1
        self.state.awaits_responses = (
            True  # the other direction signals when all owed responses have been sent
        )
        self.verdict.order = REFUSE
        return REFUSE

    def await_responses(self) -> int:
        """Order WAIT until enough of the owed responses have arrived; the other direction signals it."""
        self.state.awaits_responses = True
        return self.wait(0, held=False)

    def wait(self, until_ms: int, *, held: bool) -> int:
        """Order WAIT until `until_ms`; a parsed result is not kept for so long, and the frame is parsed again."""
        if until_ms:
            self._parsing = None
            if self.state.observer is not None:
                self.state.observer.waits(held)
        self.verdict.until_ms = until_ms
        self.verdict.held = held
        self.verdict.order = WAIT
        return WAIT


def copied(buf: Buffer, start: int, stop: int) -> bytes:
    """Return a copy of a part of the buffer; a large one is copied once, while a slice of a slice is copied twice."""
    with memoryview(buf)[start:stop] as part:
        return bytes(part)


def skip_header_tags(buf: bytes | bytearray, pos: int, end: int, *, flexible: bool = True) -> int | None:
    """Return where a request's fields begin, given where its client id ends; None if `end` precedes that.

    Raises:
        OversizedError: it has more tags than any valid header.
    """
    if not flexible:
        return pos
    try:
        return header.skip_header_tags(buf, pos, end)
    except TruncatedError:
        return None
