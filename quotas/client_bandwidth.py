"""Produce and fetch bytes of one client (KIP-13), and what a channel is to do about them (KIP-219).

`Throttle` is what a channel talks to: one per client, broker and direction, for as long as the channel knows the
client. It counts, refreshes itself when definitions or options have changed, and asks the limiter of the policy in
force: `sampled.SampledThrottle` (kip13) or `schedule.ScheduledThrottle`. Clients that share a quota share a limiter.
No arithmetic is here, and nothing that knows what a mute or a hold is made of.
"""

from typing import Final, Protocol

from quotas.announced import ARRIVAL_MS
from quotas.decisions import ADMITTED, Decision
from quotas.definitions import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.turn import Limiter, Turn
from quotas.windowed import Windowed

PRODUCE: Final = PRODUCER_BYTE_RATE
FETCH: Final = CONSUMER_BYTE_RATE


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


class Throttle(Windowed):
    """One client's produce or fetch bytes at one broker."""

    __slots__ = (
        "_limiter",
        "_source",
        "_version",
        "broker",
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
        super().__init__()
        self._source = source
        self.key = key
        self.broker = broker
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

    def turn(self) -> Turn:
        """A place for one more channel; give it back with `leave`."""
        self.turns += 1
        return Turn()

    def leave(self, turn: Turn, now_ms: int) -> None:
        """The channel is gone, or speaks for another client now; of a request that ends early only what did not
        arrive is given back.
        """
        self.turns -= 1
        self.bytes_total -= max(turn.announced, 0) + turn.lost
        if turn.limiter is not None:
            turn.limiter.leave(turn, now_ms)
            turn.limiter = None

    def produce(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """A Produce header was seen; or its hold is over.

        Args:
            turn: the channel's place; `Turn.missing` says how much of the request is still to come.
            size: the frame's length without its prefix, known from the header (KIP-13 counts these bytes).
            now_ms: monotonic.

        Returns:
            ADMITTED; or throttle_ms: it passes now, the answer carries the time, and the channel is muted
            from now; or hold_until_ms: do not read on, ask again then (earlier is allowed), with the same
            size; or refused: it has been held for as long as it may be, and does not pass.
        """
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if turn.limiter is not limiter:
            self._rehome(turn, limiter, now_ms)
        if limiter is None:
            self.bytes_total += size
            return ADMITTED
        if not self._source.enforcing:
            return self._observe(limiter, turn, size, now_ms, consumes=False)
        held_since_ms = turn.held_since_ms
        decision = limiter.produce(turn, size, now_ms)
        if decision.hold_until_ms:
            return decision
        if decision is not ADMITTED or held_since_ms >= 0:
            self.throttled_total += 1
            self.throttle_ms_total += decision.throttle_ms + (
                now_ms - held_since_ms if held_since_ms >= 0 else 0
            )
        if not decision.refused:
            self.bytes_total += size
        return decision

    def announce(self, turn: Turn, missing: int, now_ms: int) -> bool:
        """The Produce that passed now is charged as a whole, and `missing` bytes of it are still to come.

        The channel counts `Turn.announced` down. Before more passes it calls `arrives`, and `produce_rest` where
        `Turn.lost` is above 0 then; at the end `arrived`. False: nothing is limited here, so none of it is needed.
        """
        limiter = self._limiter
        if limiter is None or turn.limiter is not limiter or not self._source.enforcing:
            return False
        limiter.announce(turn, missing, now_ms)
        return True

    def produce_rest(self, turn: Turn, now_ms: int) -> Decision:
        """Charge again what was given back because it did not arrive in time; as `produce`."""
        missing = turn.missing = turn.lost
        decision = self.produce(turn, missing, now_ms)
        if not decision.hold_until_ms and not decision.refused:
            self.bytes_total -= missing  # it was counted when its header was seen
            turn.lost = 0
            self.announce(turn, missing, now_ms)
        else:
            turn.lost = missing  # also at another limiter, which knows nothing of it
        return decision

    def arrives(self, turn: Turn, now_ms: int) -> None:
        """More of a request that was announced is here: what did not come in time is given back, and is `Turn.lost`."""
        if turn.limiter is not None and not turn.lost and now_ms >= turn.announced_ms + ARRIVAL_MS:
            turn.limiter.take_back(now_ms)

    def arrived(self, turn: Turn) -> None:
        """A request that was announced is here."""
        if turn.limiter is not None:
            turn.limiter.arrived(turn)

    def fetch(self, turn: Turn, now_ms: int) -> Decision:
        """A Fetch is about to be forwarded: ADMITTED, or throttle_ms: answer it empty at once, and mute.

        Where it is admitted and `limits` holds, it may bring `fetch_max_bytes`, and wait for `Turn.wait_ms_max`.
        """
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if turn.limiter is not limiter:
            self._rehome(turn, limiter, now_ms)
        if limiter is None or not self._source.enforcing:
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
        if turn.limiter is not limiter:
            self._rehome(turn, limiter, now_ms)
        if limiter is None:
            return ADMITTED
        if not self._source.enforcing:
            self.bytes_total -= size
            return self._observe(limiter, turn, size, now_ms, consumes=True)
        decision = limiter.fetched(turn, size, now_ms)
        if decision is not ADMITTED:
            self.throttled_total += 1
            self.throttle_ms_total += decision.throttle_ms
        return decision

    def delivered(self, turn: Turn, size: int, now_ms: int) -> Decision:
        """An answer passes that was not weighed beforehand; what is under way stays so. Else as `fetched`."""
        if self._version is not self._source.version:
            self._refresh(now_ms)
        limiter = self._limiter
        if limiter is not None and not self._source.enforcing:
            return self._observe(limiter, turn, size, now_ms, consumes=True)
        self.bytes_total += size
        if limiter is None:
            return ADMITTED
        decision = limiter.delivered(size, now_ms)
        if decision is not ADMITTED:
            self.throttled_total += 1
            self.throttle_ms_total += decision.throttle_ms
        return decision

    def debt_bytes(self, now_ms: int) -> float:
        """What this client's identity owes; 0 for an unlimited one."""
        return 0.0 if self._limiter is None else self._limiter.debt_bytes(now_ms)

    def byte_rate(self, now_ms: int) -> float:
        """Bytes/s over the quota's windows, whenever it is asked for."""
        return self.per_second(self.bytes_total, now_ms)

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
        self.begin(now_ms)
        before = self._limiter
        self.limit, after = self._source.attach(self.key, self.user, self.client_id, self.broker, now_ms)
        if after is not before:
            if after is not None:
                after.users += 1
            self._limiter = after
            if before is not None:
                self._source.release(before)
        self._version = self._source.version

    def _rehome(self, turn: Turn, limiter: Limiter | None, now_ms: int) -> None:
        """This channel's limiter is another one now, or none: its place at the old one is void."""
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
