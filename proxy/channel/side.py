"""What both directions of a channel share: how a verdict is given, and work on one frame that goes on later."""

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

__all__ = [
    "NS_PER_MS",
    "UNDECIDED",
    "WALK",
    "Side",
    "copied",
    "skip_header_tags",
]

# Inside the package only: the frame is walked (`Side.walk`), because addresses may stand at its end, or because its
# topics have quotas.
WALK: Final = 4
# The bit that MORE, WAIT and REFUSE have: the frame was not passed.
UNDECIDED: Final = 1
NS_PER_MS: Final = 1_000_000

T = TypeVar("T")


class Side(ABC):
    """One direction of a channel. What it offers the shell stands in `proxy.channel.contract`.

    Attributes:
        verdict: what the shell reads after each `receive`.
        moved_ns: when the source last got further than a frame's head: a part of a large frame has passed, or what
            waited to be written was. For the answers' side also when the last answer that is measured began, or the
            broker was connected: from then on it can be busy with the next request.
        frame_bytes: size of the answer that is being decided on, its prefix included.
        walk: the walk through the frame under way; None where it is none that is walked.
        walk_answered: whether an answer is owed to the Produce that is walked, or whose bytes are still to come.
        job: with WAIT: what the shell has to do first (`proxy.channel.parsing`), which it takes from here; on the
            answers' side there is no other reason to wait.
    """

    __slots__ = (
        "_arriving",
        "_parsing",
        "frame_bytes",
        "job",
        "moved_ns",
        "state",
        "verdict",
        "walk",
        "walk_answered",
    )

    def __init__(self, state: ChannelState) -> None:
        self.state = state
        self.verdict = Verdict()
        self.moved_ns = 0
        self.frame_bytes = 0
        self.walk: Walk | None = None
        self.walk_answered = False
        self._arriving: Flow | None = None
        self.job: Job | None = None
        self._parsing: Job | None = None  # the one whose result is waited for

    # The cause of the end of who sends a longer frame than may be.
    too_long: ClassVar[str]

    @abstractmethod
    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Decide over buf[start:end], read at `now_ns`."""

    def mid_frame(self) -> bool:
        """Whether a frame has begun to pass and is not over."""
        return self.verdict.unseen > 0 or self.walk is not None

    def late(self, now_ms: int) -> bool:  # noqa: ARG002 - requests are
        """Whether the frame under way has to be decided on again before more of it passes."""
        return False

    def past_unseen(self, start: int, end: int) -> int:
        """Where in buf[start:end] the bytes end that may pass unlooked; they are counted off."""
        count = min(self.verdict.unseen, end - start)
        self.verdict.unseen -= count
        self.moved_ns = self.state.now_ns
        return start + count

    def passed(self, count: int, now_ns: int) -> None:
        """The shell has passed `count` of the unseen bytes on."""
        self.verdict.unseen -= count
        self.moved_ns = now_ns

    def moved(self, now_ns: int) -> None:
        """The source is connected, or the destination has taken what waited for it."""
        self.moved_ns = now_ns

    def more(self, have: int, length: int) -> int:
        """Order MORE of a frame that has announced `length` bytes and of which `have` are here, its prefix included.

        Raises:
            PeerError: the frame is all here, so its contents end before they should.
        """
        if have >= length + 4:
            raise PeerError("malformed", f"a frame of {length} bytes ends before its contents do")
        self.verdict.need = min(length + 4, 2 * have + 64)
        self.verdict.order = MORE
        return MORE

    def more_of(self, need: int) -> int:
        """Order MORE until `need` bytes of the frame are here, its prefix included."""
        self.verdict.need = need
        self.verdict.order = MORE
        return MORE

    def whole(self, have: int, length: int, most: int) -> bool:
        """Whether a frame that has to be seen whole is; if not, the order is MORE.

        Args:
            most: how long such a frame may be (`proxy.channel.bounds`).

        Raises:
            PeerError: it is longer.
        """
        if length > most:
            raise PeerError(self.too_long, f"a message of {length} bytes, at most {most} are kept")
        if have >= length + 4:
            return True
        self.verdict.need = length + 4
        self.verdict.order = MORE
        return False

    def parse(self, function: Callable[..., T], frame: bytes, *arguments: Any, weight: int = 0) -> T | None:
        """What `function(frame, *arguments)` gives; None with an order while that is worked out beside the loop.

        What may be handed over, and what a caller may have done before, stands in `proxy.channel.parsing`.

        Args:
            weight: as how many more bytes of a frame the arguments count.

        Raises:
            WireError: the function raised it.
        """
        if len(frame) + weight <= AT_ONCE_BYTES_MAX:
            return function(frame, *arguments)
        job = self._parsing
        if job is None or not job.is_of(function, (frame, *arguments)):
            job = self._parsing = self.job = Job(function, (frame, *arguments))
        if not job.done:
            self.wait(0, held=False)
            return None
        self._parsing = None
        parsed: T = job.result()
        return parsed

    def next_turn(self) -> int:
        """Order to be shown the rest again in the loop's next turn: enough was done in this one."""
        self.job = AGAIN
        return self.wait(0, held=False)

    @property
    def kept_bytes(self) -> int:
        """What takes memory here beside the frame: a copy that is to be parsed, or what became of it; and a walk."""
        kept = 0 if self._parsing is None else self._parsing.kept_bytes
        if self.walk is not None and self.walk.sizes:
            kept += len(self.walk.sizes) * TOPIC_SIZE_BYTES
        return kept

    def charge_ahead(self, flow: Flow | None) -> None:
        """Note the flow that is charged for the request under way before its bytes come; None: no longer."""
        self._arriving = flow
        self.verdict.charged_ahead = flow is not None

    def take_signal(self) -> bool:
        """Tell whether something has begun that concerns the other side, once."""
        signal, self.verdict.signal = self.verdict.signal, False
        return signal

    def take_insert(self) -> bytes | bytearray | memoryview:
        """Give the bytes that REPLACE puts in, once: from then on they count as the shell's."""
        insert, self.verdict.insert = self.verdict.insert, b""
        return insert

    def take_job(self) -> Job | None:
        """Give what the shell has to do before it shows the rest again, once."""
        job, self.job = self.job, None
        return job

    def replace(self, drop: int, insert: bytes | bytearray | memoryview, unseen: int = 0) -> int:
        """Order REPLACE: leave `drop` bytes out, put `insert` there; then `unseen` bytes of the frame pass unlooked."""
        self.verdict.drop = drop
        self.verdict.insert = insert
        self.verdict.unseen = unseen
        self.verdict.order = REPLACE
        return REPLACE

    def refuse(self, label: str) -> int:
        """Order REFUSE of a Produce that was held for as long as it may be; `label` says which kind, to be counted."""
        self.state.stats.produce_refused[label] += 1
        self.state.awaits_responses = True  # the other side tells when all that is owed has been answered
        self.verdict.order = REFUSE
        return REFUSE

    def await_responses(self) -> int:
        """Order to wait until enough of the responses owed have come; the other side signals it."""
        self.state.awaits_responses = True
        return self.wait(0, held=False)

    def wait(self, until_ms: int, *, held: bool) -> int:
        """Order WAIT until `until_ms`; what was parsed meanwhile is not kept for so long, and parsed again then."""
        if until_ms:
            self._parsing = None
            if self.state.observer is not None:
                self.state.observer.waits(held)
        self.verdict.until_ms = until_ms
        self.verdict.held = held
        self.verdict.order = WAIT
        return WAIT


def copied(buf: Buffer, start: int, stop: int) -> bytes:
    """A part of the buffer, for keeps; a large one is copied once, where a slice of a slice would be copied twice."""
    with memoryview(buf)[start:stop] as part:
        return bytes(part)


def skip_header_tags(buf: bytes | bytearray, pos: int, end: int, *, flexible: bool = True) -> int | None:
    """Where a request's fields begin, given where its client id ends; None when `end` comes before that.

    Raises:
        OversizedError: it has more tags than any header has use for.
    """
    if not flexible:
        return pos
    try:
        return header.skip_header_tags(buf, pos, end)
    except TruncatedError:
        return None
