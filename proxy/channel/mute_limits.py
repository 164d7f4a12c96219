"""For how long a channel may be muted, and a request held on it: what bounds both besides the throttle time itself.

quotas.mute_seconds_max        of every mute (`quotas.throttles.mute.capped`); the rest of a throttle time stays as debt
a group's session timeout      a fifth of it, where group requests were seen on the connection: heartbeats wait too
the SASL session's end         a broker closes on what arrives later, though it was sent in time (KIP-368)
"""

from typing import Final

from quotas.engine import Engine
from quotas.limiters.flow import MS_UNBOUNDED
from quotas.throttles.mute import GROUP_SESSION_TIMEOUT_MS, capped

__all__ = ["MuteLimits"]

_SESSION_TIMEOUT_MS_MIN: Final = 6_000
# A session's last part, in which no channel is muted: what was sent in it has to reach the broker before it is over.
# Clients authenticate again when 85 to 95 % are over (Java), or later still.
_SESSION_END_SHARE: Final = 10
_SESSION_END_MS_MAX: Final = 20_000
# Several held requests may wait behind each other.
_SESSION_HOLD_SHARE: Final = 20


class MuteLimits:
    """Those of one channel.

    Attributes:
        group_session_timeout_ms: the shortest session timeout named here; 0 where a group request named none;
            None where no group request was seen.
    """

    __slots__ = ("_engine", "_session_ms", "_session_until_ms", "group_session_timeout_ms")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session_ms = 0  # how long the principal's session lasts; 0 = for ever (KIP-368)
        self._session_until_ms = 0  # until when it may be muted
        self.group_session_timeout_ms: int | None = None

    def told(self, throttle_ms: int, now_ms: int) -> int:
        """How much of a throttle time is enforced from now on, and told."""
        told_ms = self._capped(throttle_ms)
        return min(told_ms, max(0, self._session_until_ms - now_ms)) if self._session_ms else told_ms

    @property
    def turn_hold_ms_max(self) -> int:
        """For how long a turn may hold a Produce: heartbeats, and the session's end, wait for a hold as for a mute."""
        hold_ms_max = MS_UNBOUNDED
        if self.group_session_timeout_ms is not None:
            hold_ms_max = self._capped(MS_UNBOUNDED)
        if self._session_ms:
            hold_ms_max = min(hold_ms_max, self._session_ms // _SESSION_HOLD_SHARE)
        return hold_ms_max

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """The client has to authenticate again within this time, 0 for never (KIP-368)."""
        self._session_ms = max(lifetime_ms, 0)
        end_ms = min(self._session_ms // _SESSION_END_SHARE, _SESSION_END_MS_MAX)
        self._session_until_ms = now_ms + self._session_ms - end_ms

    def name_session_timeout(self, session_timeout_ms: int) -> None:
        """A group request has passed; 0 where it names no session timeout.

        Brokers take none below 6 s (group.min.session.timeout.ms): a client that names less ends no mute by it.
        """
        if session_timeout_ms:
            session_timeout_ms = max(session_timeout_ms, _SESSION_TIMEOUT_MS_MIN)
        known = self.group_session_timeout_ms
        if known is None or known == 0:
            self.group_session_timeout_ms = session_timeout_ms
        elif session_timeout_ms:
            self.group_session_timeout_ms = min(known, session_timeout_ms)

    def _capped(self, throttle_ms: int) -> int:
        mute_ms_max = self._engine.options.mute_seconds_max * 1000
        group_ms = self.group_session_timeout_ms
        return capped(throttle_ms, int(mute_ms_max), GROUP_SESSION_TIMEOUT_MS if group_ms == 0 else group_ms)
