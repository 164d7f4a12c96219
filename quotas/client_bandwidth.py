"""Produce and fetch bytes of one client (KIP-13), and what a channel is to do about them (KIP-219).

`Throttle` is what a channel talks to: one per client, broker and direction, for as long as the channel knows
the client. It counts, refreshes itself when definitions or options have changed, and asks the limiter of the
policy in force:

- `SampledThrottle` here is Kafka's arithmetic (kip13): produce is paid afterwards, fetch is admitted
  beforehand;
- `schedule.ScheduledThrottle` is the schedule.

Where Kafka's order cannot be kept: Kafka weighs a Fetch when its data is ready and throws the data away if it
is too much. A proxy weighs it before it is forwarded, with this channel's last answer standing for the next
one; Fetches with the broker count as recorded. What was forwarded is delivered, even if it turns out larger:
then that answer carries the throttle time. And a batch larger than the whole window passes once the window is
empty: Kafka refuses it for ever (§1.5).
"""

from typing import Final, Protocol

from quotas.decisions import ADMITTED, Decision
from quotas.definitions import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.options import EngineOptions
from quotas.rate import SampledRate
from quotas.turn import Limiter, Place, Turn

PRODUCE: Final = PRODUCER_BYTE_RATE
FETCH: Final = CONSUMER_BYTE_RATE
# The first Fetch of an identity, as long as there is no answer to judge by.
FIRST_FETCH_BYTES: Final = 65_536
# One partition's default (max.partition.fetch.bytes): a consumer that had nothing to fetch may always begin with it.
FETCH_BYTES_MIN: Final = 1_048_576


class Source(Protocol):
    """What a throttle needs of the engine."""

    version: object
    enforcing: bool

    def attach(
        self, key: str, user: str, client_id: str, broker: int, now_ms: int
    ) -> tuple[float | None, Limiter | None]:
        """The limit of this client and the limiter it counts against; both `None`: unlimited."""

    def release(self, limiter: Limiter) -> None:
        """This throttle does not count against that limiter any more."""


class SampledThrottle:
    """Kafka's sampled window for one identity: kip13."""

    __slots__ = (
        "_expected",
        "_in_flight",
        "_limit",
        "_mute_ms_max",
        "_rate",
        "_safe",
        "_samples",
        "_window_ms",
        "enforced",
        "place",
        "users",
        "version",
    )

    def __init__(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        self.users = 0
        self.version: object = None
        self.enforced = True
        self.place: Place | None = None
        self._in_flight = 0  # bytes expected of Fetches that are with the broker
        self._expected = FIRST_FETCH_BYTES  # what a Fetch of a channel without history is taken for
        self._samples = options.window_samples
        self._window_ms = int(options.window_seconds * 1000)
        self._rate = SampledRate(self._samples, self._window_ms)
        self.configure(limit, options, now_ms)

    def configure(self, limit: float, options: EngineOptions, now_ms: int) -> None:
        """Apply a new limit; the recorded bytes stay, unless the windows themselves have changed."""
        assert limit > 0, "a definition checks this"
        self._limit = limit
        self._mute_ms_max = int(options.mute_seconds_max * 1000)
        window_ms = int(options.window_seconds * 1000)
        if (options.window_samples, window_ms) != (self._samples, self._window_ms):
            recorded = self._rate.total
            self._samples, self._window_ms = options.window_samples, window_ms
            self._rate = SampledRate(self._samples, window_ms)
            self._rate.record(recorded, now_ms)
        self._safe = limit * (self._samples - 1) * window_ms / 1000.0

    def settle(self, now_ms: int) -> None:
        """Nothing to do: the window forgets by itself."""

    def produce(self, turn: Turn, size: int, now_ms: int) -> Decision:  # noqa: ARG002 - the schedule needs it
        """Post-paid: record, then throttle for what is over."""
        rate = self._rate
        rate.record(size, now_ms)
        if rate.total <= self._safe and now_ms < rate.purge_at_ms:
            return ADMITTED  # the smallest window allows as much, and no sample is due to be emptied
        throttle_ms = rate.throttle_ms(self._limit, now_ms)
        if throttle_ms <= 0:
            return ADMITTED
        return Decision(throttle_ms=min(throttle_ms, self._mute_ms_max), reason="produce over quota")

    def fetch(self, turn: Turn, now_ms: int) -> Decision:
        """Admission control: throttle as if the last answer were returned again (KIP-219), else forward."""
        if turn.admitted >= 0:
            self._in_flight -= turn.admitted
            turn.admitted = -1
        rate = self._rate
        expected = turn.expected or self._expected
        throttle_ms = 0
        if rate.total + self._in_flight + expected > self._safe or now_ms >= rate.purge_at_ms:
            rate.record(expected, now_ms)  # as Kafka does: record, compare, take back
            throttle_ms = rate.throttle_ms(self._limit, now_ms, self._in_flight)
            rate.record(-expected, now_ms)
        if throttle_ms > 0:
            # Once the window is empty, waiting longer cannot help: that one passes.
            empty_in_ms = max(rate.empty_in_ms(now_ms), self._window_ms if self._in_flight else 0)
            throttle_ms = min(throttle_ms, empty_in_ms, self._mute_ms_max)
            if throttle_ms > 0:
                return Decision(throttle_ms=throttle_ms, reason="fetch over quota")
        turn.admitted = expected
        self._in_flight += expected
        return ADMITTED

    def fetch_max_bytes(self, turn: Turn, requested: int, now_ms: int) -> int:
        """KAFKA-9677: no answer larger than N - 1 samples of quota, and none larger than what is left of the window.

        Several Fetches are with the broker at once, each charged as expected: none may bring far more than that.
        """
        rate = self._rate
        known = max(2 * turn.expected, FETCH_BYTES_MIN) if turn.expected else requested
        granted = min(requested, int(self._safe), known)
        others = self._in_flight - max(turn.admitted, 0)
        if rate.total + others + granted > self._safe or now_ms >= rate.purge_at_ms:
            granted = max(1, min(granted, rate.left(self._limit, now_ms) - others))
        if not turn.expected and turn.admitted >= 0:  # it may bring as much: nobody knows better yet
            self._in_flight += granted - turn.admitted
            turn.admitted = granted
        return granted

    def fetched(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """Record what was delivered; over the quota, this very answer says so."""
        if turn.admitted >= 0:
            self._in_flight -= turn.admitted
            turn.admitted = -1
        # One empty answer is no sign that there is nothing to fetch; ten in a row are.
        turn.expected = self._expected = max(size, turn.expected // 2)
        return self.produce(turn, size, now_ms)

    def observe(self, turn: Turn, size: int, now_ms: int, consumes: bool) -> int:
        """Kafka's own order, since nothing is withheld here: record, compare, and un-record a Fetch that is
        over.
        """
        self.leave(turn, now_ms)
        turn.expected = size
        self._rate.record(size, now_ms)
        throttle_ms = self._rate.throttle_ms(self._limit, now_ms)
        if throttle_ms > 0 and consumes:
            self._rate.record(-size, now_ms)
        return min(throttle_ms, self._mute_ms_max)

    def leave(self, turn: Turn, now_ms: int) -> None:  # noqa: ARG002 - the schedule needs it
        """Forget the Fetch that was with the broker."""
        if turn.admitted >= 0:
            self._in_flight -= turn.admitted
            turn.admitted = -1

    def debt_bytes(self, now_ms: int) -> float:
        """Bytes in the window beyond what it allows."""
        return float(max(0, -self._rate.left(self._limit, now_ms)))


class Throttle:
    """One client's produce or fetch bytes at one broker."""

    __slots__ = (
        "_asked_bytes",
        "_asked_ms",
        "_asked_rate",
        "_broker",
        "_limiter",
        "_source",
        "_version",
        "bytes_total",
        "client_id",
        "key",
        "limit",
        "throttle_ms_total",
        "throttled_total",
        "turns",
        "user",
        "would_throttle_ms_total",
        "would_throttled_total",
    )

    def __init__(self, source: Source, key: str, user: str, client_id: str, broker: int) -> None:
        self._source = source
        self.key = key
        self._broker = broker
        self._version: object = None
        self._limiter: Limiter | None = None
        self.user = user
        self.client_id = client_id
        self.limit: float | None = None  # bytes per second, as of the last refresh
        self.turns = 0  # channels that have a place here
        self.bytes_total = 0
        self.throttle_ms_total = 0  # held and muted
        self.throttled_total = 0
        self.would_throttle_ms_total = 0
        self.would_throttled_total = 0
        self._asked_ms = -1
        self._asked_bytes = 0
        self._asked_rate = 0.0

    def turn(self) -> Turn:
        """A place for one more channel; give it back with `leave`."""
        self.turns += 1
        return Turn()

    def leave(self, turn: Turn, now_ms: int) -> None:
        """The channel is gone, or speaks for another client now."""
        self.turns -= 1
        if turn.limiter is not None:
            turn.limiter.leave(turn, now_ms)
            turn.limiter = None

    def produce(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """A Produce header was seen; or its hold is over.

        Args:
            turn: the channel's place.
            size: the frame's length without its prefix, known from the header (KIP-13 counts these bytes).
            now_ms: monotonic.

        Returns:
            ADMITTED; or throttle_ms: it passes now, the answer carries the time, and the channel is muted
            from now; or hold_until_ms: do not read on, ask again then (earlier is allowed), with the same
            size.
        """
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is None:
            self.bytes_total += size
            return ADMITTED
        if turn.limiter is not limiter:
            self._rehome(turn, limiter, now_ms)
        if not self._source.enforcing:
            return self._observe(limiter, turn, size, now_ms, consumes=False)
        held_since_ms = turn.held_since_ms
        decision = limiter.produce(turn, size, now_ms)
        if decision is not ADMITTED and decision.hold_until_ms:
            return decision
        self.bytes_total += size
        if held_since_ms >= 0 or decision is not ADMITTED:
            self.throttled_total += 1
            self.throttle_ms_total += decision.throttle_ms + (
                now_ms - held_since_ms if held_since_ms >= 0 else 0
            )
        return decision

    def fetch(self, turn: Turn, now_ms: int) -> Decision:
        """A Fetch is about to be forwarded: ADMITTED, or throttle_ms: answer it empty at once, and mute."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is None:
            return ADMITTED
        if turn.limiter is not limiter:
            self._rehome(turn, limiter, now_ms)
        if not self._source.enforcing:
            return ADMITTED
        decision = limiter.fetch(turn, now_ms)
        if decision is not ADMITTED:
            self.throttled_total += 1
            self.throttle_ms_total += decision.throttle_ms
        return decision

    def fetch_max_bytes(self, turn: Turn, requested: int, now_ms: int) -> int:
        """The cap for a Fetch that was admitted: at most `requested`, never below 1."""
        limiter = self._limiter
        if limiter is None or turn.limiter is not limiter or not self._source.enforcing:
            return requested
        return limiter.fetch_max_bytes(turn, requested, now_ms)

    def fetched(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """A Fetch's answer of `size` bytes (4 + body) begins: ADMITTED, or throttle_ms for this answer and
        the channel.
        """
        if self._version is not self._source.version:
            self._refresh(now_ms)
        self.bytes_total += size
        limiter = self._limiter
        if limiter is None:
            return ADMITTED
        if turn.limiter is not limiter:
            self._rehome(turn, limiter, now_ms)
        if not self._source.enforcing:
            self.bytes_total -= size
            return self._observe(limiter, turn, size, now_ms, consumes=True)
        decision = limiter.fetched(turn, size, now_ms)
        if decision is not ADMITTED:
            self.throttled_total += 1
            self.throttle_ms_total += decision.throttle_ms
        return decision

    def debt_bytes(self, now_ms: int) -> float:
        """What this client's identity owes; 0 for an unlimited one."""
        return 0.0 if self._limiter is None else self._limiter.debt_bytes(now_ms)

    def byte_rate(self, now_ms: int) -> float:
        """Bytes/s since the last time somebody asked, at least a second ago."""
        elapsed_ms = now_ms - self._asked_ms
        if self._asked_ms < 0:
            self._asked_ms, self._asked_bytes = now_ms, self.bytes_total
        elif elapsed_ms >= 1000:
            self._asked_rate = (self.bytes_total - self._asked_bytes) * 1000.0 / elapsed_ms
            self._asked_ms, self._asked_bytes = now_ms, self.bytes_total
        return self._asked_rate

    def limits(self, now_ms: int) -> bool:
        """Whether anything is enforced here now: if not, a Fetch need not even be looked at."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        return self._limiter is not None and self._source.enforcing

    def refresh(self, now_ms: int) -> None:
        """Take over the definitions and options in force, if they have changed."""
        if self._version is not self._source.version:
            self._refresh(now_ms)

    def detach(self) -> None:
        """Let go of the limiter; the engine drops it when nobody uses it. The next call attaches again."""
        if self._limiter is not None:
            self._source.release(self._limiter)
        self._limiter = self._version = None

    def _refresh(self, now_ms: int) -> None:
        before = self._limiter
        self.limit, after = self._source.attach(self.key, self.user, self.client_id, self._broker, now_ms)
        if after is not before:
            if after is not None:
                after.users += 1
            self._limiter = after
            if before is not None:
                self._source.release(before)
        self._version = self._source.version

    def _rehome(self, turn: Turn, limiter: Limiter, now_ms: int) -> None:
        """This channel's limiter is another one now: its place at the old one is void."""
        if turn.limiter is not None:
            turn.limiter.leave(turn, now_ms)
            turn.forget()
        turn.limiter = limiter

    def _observe(self, limiter: Limiter, turn: Turn, size: int, now_ms: int, consumes: bool) -> Decision:
        """Nothing is enforced: count what would have been. Overlapping mutes of one channel count once."""
        self.bytes_total += size
        would_ms = limiter.observe(turn, size, now_ms, consumes)
        if would_ms > 0:
            self.would_throttled_total += 1
            until_ms = now_ms + would_ms
            if until_ms > turn.would_until_ms:
                self.would_throttle_ms_total += until_ms - max(now_ms, turn.would_until_ms)
                turn.would_until_ms = until_ms
        return ADMITTED
