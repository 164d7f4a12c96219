"""Catch-up reads: what a consumer fetches behind the log's end counts against a quota of its own.

So consumers at the log's end do not wait for one that replays, although all of them share a quota. Which records are
behind is decided by what the broker sends (`protocol.walks.fetch.BytesBehind`), so it is known only when the response
has come; the next Fetch of the channel is decided on by the quota against which the last response counted, and the
first one by that of catch-up reads. No partition and no offset is kept. If the last response had records of both
kinds, or there was none yet, the other quota decides as well, but only by its debt: nothing is charged there
beforehand.

A response that was not foreseen, the first one behind the log's end after others, was decided on by the other quota. It
is charged to the right one, which mutes the channel, and may bring UNFORESEEN_BYTES_MAX and a batch. A channel that
alternates cannot do better: each such response follows one that the quota of catch-up reads has admitted.

Without such a limit a client's responses are not walked for it.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from protocol.walks.fetch import BytesBehind, PartitionsWalk, first_batch_bytes
from proxy.channel.direction import Buffer, ChannelDirection, ChannelState, Divided, Entry, Identity
from proxy.channel.verdict import WALK
from quotas.limiters.batches import may_be_cut, record_first_batch
from quotas.limiters.limiter import ADMITTED, Decision, Flow
from quotas.throttles.bandwidth import Throttle

UNFORESEEN_BYTES_MAX: Final = 1024 * 1024  # as much as a Java client asks of one partition

# The head of a Fetch response.
ERROR_AND_SESSION: Final = Struct(">hi").unpack_from
THROTTLE_SINCE: Final = 1
SESSION_SINCE: Final = 7
FLEXIBLE_SINCE: Final = 12
# Length, correlation id, a tag section's count, throttle time, error, session id.
RESPONSE_HEAD_BYTES: Final = 19


@dataclass(slots=True, eq=False)
class DividedFetch(Divided):
    """The owed response to a Fetch of a client with a limit of catch-up reads.

    Args:
        session_id: the fetch session of the request, with which that of the response is compared; 0: it is not.
        exclusive: whether a quota was checked before it was forwarded; then the channel's next Fetch waits for it.
        throttle: that of catch-up reads, to which the channel is attached.
    """

    identity: Identity
    session_id: int
    exclusive: bool
    throttle: Throttle
    _flow: Flow = field(init=False)
    _foreseen: bool = field(init=False)  # whether the throttle of catch-up reads has admitted it
    _sink: BytesBehind = field(init=False)
    _size: int = field(default=0, init=False)
    _throttle_at: int = field(
        default=-1, init=False
    )  # where its throttle time can still be written; -1: it was sent

    def __post_init__(self) -> None:
        flow = self.identity.catch_up_flow
        assert flow is not None, "the channel is attached"
        self._flow = flow
        self._foreseen = self.identity.behind
        self._sink = BytesBehind(self.identity.quota.catch_up_lag)

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Begin the walk through the response, at whose last partition both quotas are charged (`divide`)."""
        length = direction.frame_bytes - 4
        if end - pos < RESPONSE_HEAD_BYTES and end - pos < length + 4:
            return direction.order_more(end - pos, length)
        version = entry[1]
        state = direction.state
        # As in `Fetched.respond`: an empty tag section of the header is not counted.
        self._size, throttle_at = (length - 1, pos + 9) if version >= FLEXIBLE_SINCE else (length, pos + 8)
        if self.session_id and version >= SESSION_SINCE and throttle_at + 10 <= end:
            error_code, response_id = ERROR_AND_SESSION(buf, throttle_at + 4)
            if error_code or response_id != self.session_id:
                state.sessions.drop(state.settings.broker, self.session_id)
        if version >= THROTTLE_SINCE and throttle_at + 4 <= end:
            self._throttle_at = throttle_at
        flow = self._flow if self._foreseen else self.identity.fetch
        if flow.admitted >= 0 and may_be_cut(flow, self._size):
            record_first_batch(flow, first_batch_bytes(buf, pos, end, version))
        direction.dividing = self
        walk = None
        if state.walks_all or state.engine.charges_fetched_topics:
            walk = state.walks.fetch_walk(direction, buf, pos, end, version)
        if walk is None:
            walk = PartitionsWalk(version, length)
        self._sink.sink, walk.sink = walk.sink, self._sink
        direction.walk = walk
        return WALK

    def divide(self, direction: ChannelDirection, buf: Buffer, now_ms: int) -> None:
        """Charge both quotas, mute the channel, and report the longer throttle time if the head is still here."""
        state = direction.state
        mute_ms = self._charge(state, now_ms)
        self._end(direction)
        if mute_ms:
            direction.verdict.signal = True
            if self._throttle_at >= 0:
                direction.report_mute(buf, self._throttle_at, mute_ms, now_ms)
                if state.observer is not None:
                    state.observer.divided()

    def head_sent(self) -> None:
        """Register that the head of the response was sent: its throttle time stays as it is."""
        self._throttle_at = -1

    def abandon(self, direction: ChannelDirection, now_ms: int) -> None:
        """Charge what is known of the response, since the connection ends before it does."""
        self._charge(direction.state, now_ms)
        self._end(direction)

    def _end(self, direction: ChannelDirection) -> None:
        direction.dividing = None
        if self.exclusive:
            direction.state.fetch_owed = False

    def _charge(self, state: ChannelState, now_ms: int) -> int:
        """Charge both quotas; returns the mute, in ms.

        What belongs to no partition's records counts where the Fetch was decided on; all of it at the log's end if
        nothing was behind.
        """
        identity, sink = self.identity, self._sink
        ordinary, own = identity.quota.fetch, identity.fetch
        behind = min(sink.behind, self._size)
        identity.behind = behind > 0
        identity.mixed = behind > 0 and sink.ahead > 0
        if not self.exclusive:  # of a client whose quotas are only observed
            muted_ms = _mute(state, ordinary, ordinary.delivered(own, self._size - behind, now_ms), now_ms)
            if behind:
                decision = self.throttle.delivered(self._flow, behind, now_ms)
                muted_ms = max(muted_ms, _mute(state, self.throttle, decision, now_ms))
            return muted_ms
        if not behind:
            if self._foreseen:
                self.throttle.fetched_none(self._flow, now_ms)
            return _mute(state, ordinary, ordinary.fetched(own, self._size, now_ms), now_ms)
        ahead = min(sink.ahead, self._size - behind) if self._foreseen else self._size - behind
        decision = self.throttle.fetched(self._flow, self._size - ahead, now_ms)
        muted_ms = _mute(state, self.throttle, decision, now_ms)
        if ahead:
            decision = ordinary.fetched(own, ahead, now_ms)
            muted_ms = max(muted_ms, _mute(state, ordinary, decision, now_ms))
        ordinary.vacate(own, now_ms)
        return muted_ms


def _mute(state: ChannelState, throttle: Throttle, decision: Decision, now_ms: int) -> int:
    """Mute the channel as decided; returns for how long, in ms."""
    return 0 if decision is ADMITTED else state.mute(throttle, decision.throttle_ms, now_ms)
