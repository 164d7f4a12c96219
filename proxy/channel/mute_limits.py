"""The bounds of a channel's mutes and holds, in addition to the throttle time.

quotas.mute_seconds_max        of every mute (`quotas.options.capped`); the rest of a throttle time stays as debt
a group's session timeout      a fifth of it, if the connection had group requests: heartbeats wait too
the end of the SASL session    a broker closes the connection for a later request, even if sent in time (KIP-368)
"""

from typing import Final

from quotas.engine import Engine
from quotas.limiters.flow import MS_UNBOUNDED
from quotas.options import GROUP_SESSION_TIMEOUT_MS, capped

_SESSION_TIMEOUT_MS_MIN: Final = 6_000
# The last part of a session, without mutes: requests that were sent in it must reach the broker before its end.
# Clients authenticate again after 85 to 95 % of the session (Java), or later still.
_SESSION_END_SHARE: Final = 10
_SESSION_END_MS_MAX: Final = 20_000
# Several held requests may wait one after the other.
_SESSION_HOLD_SHARE: Final = 20


class MuteLimits:
    """The bounds of one channel's mutes and holds.

    Attributes:
        group_session_timeout_ms: the shortest session timeout named here; 0 where a group request named none;
            None where no group request was seen.
    """

    __slots__ = ("_engine", "_session_ms", "_session_until_ms", "group_session_timeout_ms")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session_ms = 0  # the duration of the principal's session; 0 = unlimited (KIP-368)
        self._session_until_ms = 0  # the latest end of a mute
        self.group_session_timeout_ms: int | None = None

    def bounded(self, throttle_ms: int, now_ms: int) -> int:
        """Return the part of a throttle time that is enforced from now on and sent to the client, in ms."""
        mute_ms = self._capped(throttle_ms)
        return min(mute_ms, max(0, self._session_until_ms - now_ms)) if self._session_ms else mute_ms

    @property
    def hold_ms_max(self) -> int:
        """The longest hold of a Produce, in ms: heartbeats and the session's end limit a hold like a mute."""
        hold_ms_max = MS_UNBOUNDED
        if self.group_session_timeout_ms is not None:
            hold_ms_max = self._capped(MS_UNBOUNDED)
        if self._session_ms:
            hold_ms_max = min(hold_ms_max, self._session_ms // _SESSION_HOLD_SHARE)
        return hold_ms_max

    def begin_session(self, lifetime_ms: int, now_ms: int) -> None:
        """Note that the client must authenticate again within this time, in ms; 0 for never (KIP-368)."""
        self._session_ms = max(lifetime_ms, 0)
        end_ms = min(self._session_ms // _SESSION_END_SHARE, _SESSION_END_MS_MAX)
        self._session_until_ms = now_ms + self._session_ms - end_ms

    def note_session_timeout(self, session_timeout_ms: int) -> None:
        """Note a group request; 0 if it has no session timeout.

        Brokers accept none below 6 s (group.min.session.timeout.ms): a client cannot avoid mutes with a shorter one.
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
