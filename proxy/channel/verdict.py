"""The verdict of one direction of a channel on the bytes that it has received; the shell reads nothing else of it.

Each direction has one `Verdict` and reuses it for every call, so that a frame creates no object. Only the channel
writes it; only the shell acts on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from types import MappingProxyType
from typing import Any, Final


class Order(IntEnum):
    """What the shell does with the bytes after those that it forwards.

    An odd order leaves the frame undecided: the same bytes are passed to `receive` again.
    """

    PASS = 0  # no bytes are left
    MORE = 1  # keep the rest until `need` bytes are here
    REPLACE = 2  # drop bytes, and send an insert in their place
    WAIT = 3  # read nothing more until a time, or until responses have arrived, or a job is done
    REFUSE = 5  # handle nothing more: the channel ends when the owed responses were sent
    WALK = 6  # from a handler to its direction only, never in a verdict: the frame is walked (`ChannelDirection.walk`)


# Plain ints: on the hot path a comparison with a member costs three times as much.
PASS: Final = int(Order.PASS)
MORE: Final = int(Order.MORE)
REPLACE: Final = int(Order.REPLACE)
WAIT: Final = int(Order.WAIT)
REFUSE: Final = int(Order.REFUSE)
WALK: Final = int(Order.WALK)
UNDECIDED: Final = 1  # the common bit of the odd ones

# The memory of a parsed frame in multiples of its bytes: four bytes may become a tuple of two.
_PARSED_TIMES: Final = 24


@dataclass(slots=True, eq=False)
class Job:
    """A function call for the shell to run in a thread, and its result when it has run.

    Attributes:
        done: whether it has run. Set last, by the thread that runs it.
    """

    _function: Callable[..., Any]
    _arguments: tuple[Any, ...]
    _result: Any = None
    _error: Exception | None = None
    done: bool = False

    def matches(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
        """Whether this job calls the same function object with equal arguments, so that its result may be used.

        `ChannelDirection.parse` asks this when the same bytes are passed again.
        """
        return self._function is function and self._arguments == arguments

    @property
    def kept_bytes(self) -> int:
        """The memory of the job: the frame, which is the first argument, and the result once it is done."""
        size = sum(len(argument) for argument in self._arguments if isinstance(argument, bytes))
        return size * (1 + _PARSED_TIMES) if self.done else size

    def run(self) -> None:
        """Run the function, in any thread; raises nothing."""
        try:
            self._result = self._function(*self._arguments)
        except Exception as error:  # noqa: BLE001 - raised by `result` instead
            self._error = error
        self.done = True

    def result(self) -> Any:
        """Return the function's result.

        Raises:
            Exception: the function raised it; a WireError, unless there is a bug.
        """
        if self._error is not None:
            raise self._error
        return self._result


def _nothing() -> None:
    """Do nothing: the job of AGAIN."""


AGAIN: Final = Job(_nothing, ())


@dataclass(slots=True, eq=False)
class Verdict:
    """The result of `receive`: the shell forwards the first `passing` bytes, and follows `order` for the rest.

    Attributes:
        passing: the number of bytes to forward, from the first one.
        order: an `Order`, as an int.
        patches: how many fields of forwarded frames were patched: throttle times, session ids, limits, addresses.
            If it has not grown, the forwarded bytes are those received, unchanged.
        passthrough: the number of further bytes of the current frame that may be forwarded unread.
        need: with MORE, the number of bytes, from the first kept one, that the next call needs.
        drop, insert: with REPLACE, the number of bytes to drop, and the bytes to send in their place; the next call of
            `receive` forgets them.
        until_ms: with WAIT, when to read again; 0: when responses have arrived, or the job is done.
        held: with WAIT, whether a request waits before its payload is read (schedule); else the channel is muted
            (KIP-219).
        job: with WAIT, a job that the shell runs in a thread before it passes the rest again; None if there is none, or
            if it runs already.
        signal: whether an event concerns the other direction: a local response is due, or a mute has begun; or the
            shell has a question to respond to (`take_signal`).
        charged_ahead: whether the current request was charged before its bytes arrived; if so, and if `recharge_due`
            returns True, call `receive` before more of it is forwarded.
        acks_zero: whether a Produce with acks=0 was seen: it is delivered even if its client has closed.
    """

    passing: int = 0
    order: int = PASS
    patches: int = 0
    passthrough: int = 0
    need: int = 0
    drop: int = 0
    insert: bytes | bytearray | memoryview = b""
    until_ms: int = 0
    held: bool = False
    job: Job | None = None
    signal: bool = False
    charged_ahead: bool = False
    acks_zero: bool = False


# The states of a channel's intake: whether it takes requests, and if not, the event that it waits for.
#
#     OPEN ──── SaslHandshake, SaslAuthenticate ──► AWAIT_BROKER ── the exchange is over ──► OPEN
#      │                                             │      ▲
#      │               response to SaslHandshake 0   │      │ a bare token that can be read
#      │                                             ▼      │
#      │                                           BARE_TOKENS ── a request begins ──► OPEN
#      ├──── a request for the shell ──► AWAIT_SHELL ── response of the shell ──► OPEN
#      └──── end_intake, from any state ──► ENDED, the final state
#
# In every state except OPEN, requests only wait: `ChannelState.in_flight_max` is 0, so that the check of every request
# is one comparison. Where a held request is the last one (`end_intake`), it is above 0 in ENDED until that has passed.

# The most requests in flight on one connection. A broker reads one at a time; librdkafka's own bound is 1,000,000 and
# Java's 5 (max.in.flight.requests.per.connection). At this limit the client's socket is not read.
IN_FLIGHT_MAX: Final = 4096

# The most bare tokens in flight. An exchange proceeds step by step, so clients send one; empty tokens would each take
# an entry for four bytes.
BARE_TOKENS_MAX: Final = 16


class Intake(Enum):
    """Which input a channel takes from its client now, or what must happen before it takes any."""

    OPEN = auto()  # requests, until IN_FLIGHT_MAX responses are owed
    AWAIT_BROKER = auto()  # nothing before the broker's response to a step of a SASL exchange
    BARE_TOKENS = auto()  # SASL tokens without a Kafka header, at most BARE_TOKENS_MAX in flight
    AWAIT_SHELL = auto()  # nothing before the shell's response
    ENDED = auto()  # no more input: owed responses are sent, then the connection ends

    @property
    def in_exchange(self) -> bool:
        """Whether a SASL exchange is under way."""
        return self is Intake.AWAIT_BROKER or self is Intake.BARE_TOKENS


# A waiting client is read again when this many responses or fewer are owed. AWAIT_BROKER ends by itself.
RESUMED_AT: Final[Mapping[Intake, int]] = MappingProxyType(
    {
        Intake.OPEN: IN_FLIGHT_MAX // 2,
        Intake.AWAIT_BROKER: -1,
        Intake.BARE_TOKENS: BARE_TOKENS_MAX // 2,
        Intake.AWAIT_SHELL: 0,
        Intake.ENDED: 0,
    }
)
