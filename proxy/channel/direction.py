"""The common part of both directions of a channel: verdicts, and work on one frame that continues later."""

import string
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from protocol import header
from protocol.errors import TruncatedError
from protocol.walks.walk import OTHER_TOPICS, TOPIC_SIZE_BYTES, Walk
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Question
from proxy.channel.state import ChannelState
from proxy.channel.verdict import AGAIN, MORE, REFUSE, REPLACE, WAIT, Job, Verdict
from quotas.definitions.kinds import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.limiters.flow import Flow

# ----------------------------------------------------------------------------------------------------
# Parses one large frame in a thread of the shell, so that the loop is not blocked.
#
# A handler with a whole frame asks its direction for the result of a pure function::
#
#     | read = direction.parse(fetch.read_whole, frame, fields_at, version)
#     | if read is None:
#     |     return direction.verdict.order
#
# A frame of at most AT_ONCE_BYTES_MAX is parsed in this call. A larger one becomes the verdict's `job`,
# with the order
# WAIT: the shell runs the job in a thread and passes the same bytes again; then the same call
# returns the
# function's result, or raises its exception. Until then nothing after the frame is handled.
#
# Before `parse` returns a result, a handler must only take steps that can be repeated. The function must
# belong to a
# module (no lambda, no bound method made for the call), must not return None, and depends on its arguments
# only, which do
# not change meanwhile. A result belongs to exactly these arguments: if the handler asks for something else,
# the result is
# discarded, and never used for another frame.
#
# AGAIN takes the place of a job if a walk has used its share of a turn of the loop: the shell passes the rest
# again in
# the next turn (`ChannelDirection.next_turn`).
#
# Non-obvious:
#
# - A large request is shown twice. The first time its handler orders a function's result, and the direction
#   waits; when
#   the thread is done the same bytes are shown again, and the same call returns the result. So nothing may be
#   charged
#   before it (`ChannelDirection.parse`), and a result belongs to exactly its bytes and arguments.


# The smallest elements have two or three bytes, and one costs up to 0.5 us: at most about 3 ms.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


# Used inside this package only: the frame is walked (`ChannelDirection.walk`), because addresses may be at its end, or
# because its topics have quotas.
WALK: Final = 4
# The common bit of MORE, WAIT and REFUSE: the frame was not passed.
UNDECIDED: Final = 1
NS_PER_MS: Final = 1_000_000

T = TypeVar("T")


class ChannelDirection(ABC):
    """One direction of a channel. `proxy.channel.channel` defines its interface for the shell.

    Attributes:
        verdict: read by the shell after each `receive`.
        moved_ns: when the source last made progress beyond a frame's head: a part of a large frame has passed, or
            pending output was written. In the response direction also when the last measured response began, or the
            broker was connected: from then on the broker can be busy with the next request.
        frame_bytes: the size of the response being decided on, with its length prefix.
        walk: the walk through the frame under way; None if it is not walked.
        response_owed: whether the walked Produce, or the one whose bytes are still to come, is owed a response.
    """

    __slots__ = (
        "_charged_flow",
        "_parsing",
        "frame_bytes",
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
        """Report that `count` passthrough bytes were forwarded; 0: pending output was written, or the source opened."""
        self.verdict.passthrough -= count
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

        `proxy.channel.direction` defines the permitted functions, and what a caller may do before.

        Args:
            weight: bytes to add to the frame's size for the arguments.

        Raises:
            WireError: the function raised it.
        """
        if len(frame) + weight <= AT_ONCE_BYTES_MAX:
            return function(frame, *arguments)
        job = self._parsing
        if job is None or not job.matches(function, (frame, *arguments)):
            job = self._parsing = Job(function, (frame, *arguments))
            self.wait(0, held=False, job=job)
            return None
        if not job.done:
            self.wait(0, held=False)
            return None
        self._parsing = self.verdict.job = None
        parsed: T = job.result()
        return parsed

    def next_turn(self) -> int:
        """Order that the shell passes the rest again in the next turn of the loop."""
        return self.wait(0, held=False, job=AGAIN)

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

    def take_signal(self) -> Question | None:
        """Clear the signal; return the question that the shell must respond to (`responded`), if there is one."""
        self.verdict.signal = False
        question, self.state.question = self.state.question, None
        return question

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

    def wait(self, until_ms: int, *, held: bool, job: Job | None = None) -> int:
        """Order WAIT until `until_ms`; a parsed result is not kept for so long, and the frame is parsed again."""
        if until_ms:
            self._parsing = None
            if self.state.observer is not None:
                self.state.observer.waits(held)
        self.verdict.until_ms = until_ms
        self.verdict.held = held
        self.verdict.job = job
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


# ----------------------------------------------------------------------------------------------------
# Charges a walk's bytes to topics, and mutes the channel for the topic with the longest throttle time.
#
# Kafka has no topic quotas; the rest is KIP-219: the channel is muted at the end of the frame that exceeded
# the quota. A
# Produce's response, which comes later, contains the throttle time. Nothing is returned for records that the
# broker
# refused: with acks=0 there is no response, and otherwise every request's topics would be kept until it
# arrives. A Fetch
# response has its throttle time in its head, before the topics are known: only the mute delays the next
# request. A frame
# of many topics is charged in parts while it passes, so a topic's position in it does not matter.
#
# A topic id without a known name is charged when its name is known (`TopicQuotas.charge_unnamed`). Counted
# but not
# charged are impossible names, which brokers refuse, and ids beyond those that can be looked up at once. If
# no topic is
# limited, no walk is begun (`Engine.charges_produced_topics`, `charges_fetched_topics`).
#
# Non-obvious:
#
# - A frame's topics are charged in parts of 250, each in a separate turn of the loop; so a frame of millions
#   delays
#   nothing, and all of them are charged.


# The characters of a Kafka topic name. A client may send any bytes, and a name may become a throttle.
_NAME_BYTES: Final = (string.ascii_letters + string.digits + "._-").encode()


def charge_produced(state: ChannelState, walk: Walk, now_ms: int, *, response_owed: bool) -> None:
    """Charge the topics of a walked Produce.

    Args:
        response_owed: whether it has a response; that is then the last one owed, since requests pass one by one.
    """
    until_ms = _charge(state, PRODUCER_BYTE_RATE, walk, now_ms)
    if until_ms and response_owed and state.in_flight:
        correlation_id, version, owed = state.in_flight[-1]
        assert owed is not None, "the response to a walked Produce reports its throttle time"
        state.in_flight[-1] = (correlation_id, version, owed.muted(until_ms))


def charge_fetched(state: ChannelState, walk: Walk, now_ms: int) -> bool:
    """Charge the topics of a walked response to a Fetch or ShareFetch; returns whether a mute has begun."""
    return _charge(state, CONSUMER_BYTE_RATE, walk, now_ms) > 0


def _charge(state: ChannelState, key: str, walk: Walk, now_ms: int) -> int:
    """Charge all topics; returns the end of the mute for them, 0 for none."""
    topics = state.engine.topics
    broker = state.settings.broker
    found: dict[str, int] = {}
    for raw, size in walk.take_sizes().items():
        if raw == OTHER_TOPICS:
            name = None
        elif walk.by_id:
            name = topics.names.name(raw, now_ms) or topics.charge_unnamed(key, broker, raw, size, now_ms)
        elif raw.translate(None, _NAME_BYTES):
            name = None
        else:
            name = raw.decode("ascii")
        if name is None:
            state.stats.topic_bytes_uncharged += size
        elif name:
            found[name] = found.get(name, 0) + size
    longest = topics.charge(key, broker, found, now_ms, state.virtual_time)
    return 0 if longest is None else now_ms + state.mute(*longest, now_ms)
