"""One channel's place at one throttle (KIP-13, KIP-219): made by `Throttle.turn()`, ended by
`Throttle.leave()`.

Plain slots and no behaviour: a channel keeps one per direction, and only the limiter that owns it changes it.
The rules are in `client_bandwidth` and `schedule`.
"""

from typing import Final, Protocol

from quotas.decisions import Decision
from quotas.entities import BucketKey
from quotas.options import EngineOptions

# The quota key, whose bytes, at which broker.
Place = tuple[str, BucketKey, int]

# Longer than any hold that can be configured, or any wait that can be asked for: the policy's own bound applies.
MS_UNBOUNDED: Final = 1 << 40
# A channel comes back a round trip and a timer after it was told to; WAN round trips are below this.
GRACE_MS: Final = 250


class Turn:
    """What a limiter remembers of one channel."""

    __slots__ = (
        "admitted",
        "announced",
        "announced_ms",
        "due_ms",
        "expected",
        "exposed",
        "forwarded_ms",
        "granted",
        "held_since_ms",
        "hold_end_ms",
        "hold_ms_max",
        "limiter",
        "lost",
        "missing",
        "passed",
        "queued",
        "returned_ms",
        "sample",
        "size",
        "start",
        "tag",
        "trusted",
        "until_ms",
        "wait_ms_max",
        "waited",
        "would_until_ms",
    )

    def __init__(self) -> None:
        self.limiter: Limiter | None = None  # whose state the rest is
        self.would_until_ms = 0  # observe: until when it would have been muted
        self.hold_ms_max = MS_UNBOUNDED  # the channel's own bound of a hold: it may speak for a group member
        self.expected = 0  # bytes of the last Fetch response: what the next one is taken for
        self.admitted = -1  # bytes charged for a Fetch that is with the broker; -1 = none is
        self.forwarded_ms = 0  # since when it is
        self.wait_ms_max = MS_UNBOUNDED  # how long it may wait there for bytes to come
        self.held_since_ms = -1  # when the waiting Produce was first seen; -1 = none waits
        self.hold_end_ms = 0  # when its hold ends at the latest
        self.passed = False  # it has sent something before
        # A Produce that is charged at its header, while its bytes come (`announced`).
        self.missing = (
            0  # bytes of the one that is to be decided on that are not here yet, as the channel knows it
        )
        self.trusted = 0  # the most bytes that were announced and came
        self.announced = 0  # bytes charged that are not here yet
        self.announced_ms = 0  # when they were charged
        self.lost = 0  # bytes given back because they did not come in time: to be charged again when they do
        self.sample = (0, 0)  # of the sampled rate, in which they are recorded
        # The rest is the schedule's.
        self.until_ms = 0  # up to where the charge of the request under way has moved the schedule
        self.returned_ms = 0  # how much of the schedule had been given back by then
        self.granted = 0  # bytes that the Fetch under way may ask for
        self.exposed = 0  # bytes that its response may bring beyond those charged
        self.tag = 0  # the identity's virtual time, in bytes, at which this channel's next request begins
        self.start = 0  # the same for the Fetch that is with the broker
        self.size = 0  # bytes of its place in the queue
        self.queued = False  # it has a place in the queue: a request that waits, or one that is expected
        self.due_ms = 0  # when it was told to come back
        self.waited = False  # its request had to wait: it sends as much as it may

    def forget(self) -> None:
        """Begin anew at another limiter; the old one has given its places back."""
        self.admitted = self.held_since_ms = -1
        self.announced = self.lost = self.trusted = self.until_ms = self.granted = self.exposed = 0
        self.tag = self.start = self.size = self.due_ms = self.hold_end_ms = 0
        self.queued = self.passed = self.waited = False
        self.wait_ms_max = MS_UNBOUNDED


class Limiter(Protocol):
    """The arithmetic of one policy for one identity; several clients may share it."""

    users: int  # throttles that count against it
    version: object  # of the engine, when it was last configured
    enforced: bool  # whether the engine enforced then
    place: Place | None  # where the engine keeps it

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit or new options live; what was recorded stays."""

    def settle(self, now_ms: int) -> None:
        """Enforcement begins: what passed before is no debt, but no more burst is due than it left."""

    def use_up_burst(self, now_ms: int) -> None:
        """Begin in the place of another limiter: what passed there is no debt, but no burst is due either."""

    def produce(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """As `Throttle.produce`."""

    def fetch(self, turn: Turn, now_ms: int) -> Decision:
        """As `Throttle.fetch`."""

    def fetch_max_bytes(self, turn: Turn, requested: int, now_ms: int) -> int:
        """As `Throttle.fetch_max_bytes`."""

    def fetched(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """As `Throttle.fetched`."""

    def delivered(self, size: int, now_ms: int) -> Decision:
        """As `Throttle.delivered`."""

    def observe(self, turn: Turn, size: int, now_ms: int, consumes: bool) -> int:
        """Record what passes without enforcement; the throttle time there would have been."""

    def announce(self, turn: Turn, missing: int, now_ms: int) -> None:
        """As `Throttle.announce`."""

    def take_back(self, now_ms: int) -> None:
        """Take back what was announced and did not come in time; what is missing of each is `Turn.lost` then."""

    def arrived(self, turn: Turn) -> None:
        """As `Throttle.arrived`."""

    def leave(self, turn: Turn, now_ms: int) -> None:
        """The channel is gone: give back its place, and what was charged and never came."""

    def debt_bytes(self, now_ms: int) -> float:
        """Bytes that passed ahead of what the limit allows by now."""
