"""The lessee: the shares of one process, from its lessor's grants.

    just begun         the least share of every key, until the first grants; after a lease without any it is cut off
    a lease            the granted shares; the default share of keys that have none of their own
    cut off            no grants for a lease: the cut-off share of every key, until the lessor is reached again

A lease begins when the report was sent to which the grants are the response. Its end is compared with the clock
whenever a share is read, so a process that was suspended uses no share that has been given to others in between.

A worker's lease may last much longer than its control process: it uses the shares only while it sees that control
runs, and for LIVE_MS after that (`live`); then the least share. A worker that was stopped itself looks first. So a
lease ends LIVE_MS after the end of the process that has given it, and yet lasts while that is only stopped.

A lowered share is in force here immediately, but is acknowledged (`confirm`) only when it is in force in all processes
below. A session that begins before that reports the old, larger share.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from quotas.sharing.lease_values import (
    DEFAULT_KEY,
    LIVE_MS,
    LOAN_MS,
    Grants,
    LeaseTerms,
    LesseeId,
    Report,
    Wish,
    is_loan,
)

GAP_MS_MIN: Final = 20  # between two reports
_SENT_MAX: Final = 64  # reports whose time is remembered


class Lessee:
    """The shares of quotas that one process has leased from its lessor, and may use now.

    Args:
        name: identifies this process, from its start to its end.
        cut_off: the share of each key that it uses while it is cut off (`cut_off`); None: the equal share.
        first: the share of each key before the first lease, and while the lessor's process may have ended; None: the
            least share.

    Attributes:
        session: the open session; 0 without one.
        version: of the last grants that were taken.
    """

    def __init__(
        self,
        terms: LeaseTerms,
        name: LesseeId,
        now_ms: int,
        cut_off: float | None = None,
        first: float | None = None,
    ) -> None:
        self.terms = terms
        self.name = name
        self.session = 0
        self.version = 0
        self._cut_off = cut_off
        self._lessees_max = terms.lessees_max
        self._first = terms.least if first is None else first
        self._begins_until_ms = now_ms + terms.lease_ms + terms.slack_ms
        self._live_until_ms: float = inf
        self._until_ms = -1  # of the lease; -1: there was none since it began or was cut off
        self._shares: dict[str, float] = {}
        self._loans: set[str] = set()  # the keys of those that are above 0
        self._loans_until_ms = -1  # -1: they have lapsed
        self._lowered: dict[str, float] = {}  # shares that processes below may still be using
        self._number = 0
        self._applied = 0
        self._acknowledged = 0  # the version that was reported as applied
        # The version of the last grants that changed a share: only these are waited for.
        self._changed_with = 0
        self._sent: deque[tuple[int, int]] = deque(maxlen=_SENT_MAX)
        self._opened_cut_off = False  # whether it was cut off when it said what it was using
        self._opening = 0  # the number of the report that opens the session; 0: none was sent
        self._wishes: dict[str, Wish] = {}
        self._reported: dict[str, Wish] = {}
        self._due_ms = now_ms

    @property
    def until_ms(self) -> int:
        """The time at which the lease ends; in the past without one."""
        return self._until_ms

    @property
    def usable_until_ms(self) -> int:
        """The time until which a share need not be read again.

        It is the end of the lease, or the time until which `live` lets the shares be used, or the end of loans, if that
        is earlier.
        """
        until_ms = min(self._until_ms, self._live_until_ms)
        if self._loans and self._loans_until_ms >= 0:
            until_ms = min(until_ms, self._loans_until_ms)
        return int(until_ms)

    def lapse(self, now_ms: int) -> bool:
        """End the loans if no grants have come for LOAN_MS; returns whether that happened now."""
        if not self._loans or not 0 <= self._loans_until_ms <= now_ms:
            return False
        self._loans_until_ms = -1
        return True

    @property
    def loans(self) -> frozenset[str]:
        """The loan keys of which this process has a share."""
        return frozenset(self._loans)

    @property
    def loans_lapsed(self) -> bool:
        """Whether loans have ended (`lapse`) that the next grants renew."""
        return bool(self._loans) and self._loans_until_ms < 0

    def live(self, now_ms: int) -> bool:
        """Register that the lessor's process runs: the leased shares may be used for another LIVE_MS.

        Returns: whether they had lapsed, and may now be used again.
        """
        lapsed = now_ms >= self._live_until_ms
        self._live_until_ms = now_ms + LIVE_MS
        return lapsed

    @property
    def unconfirmed(self) -> bool:
        """Whether grants were taken that `confirm` has not acknowledged yet."""
        return self._applied < self.version

    @property
    def pending(self) -> bool:
        """Whether a report should be sent before the period is over: there are changes, or no session is open."""
        return not self.session or self._changed()

    def leased(self, now_ms: int) -> bool:
        """Whether a lease is in force."""
        return now_ms < self._until_ms

    def cut_off(self, now_ms: int) -> bool:
        """Whether the lease has ended, or none has begun in time, so that other processes may use this one's shares."""
        return not self.leased(now_ms) and (self._until_ms >= 0 or now_ms >= self._begins_until_ms)

    def lends_until_ms(self, now_ms: int) -> int:
        """Return when what this process leases on now has to end: with its lease.

        Without one it is the earliest end of the next lease, which begins when the opening report was sent.
        """
        if self.leased(now_ms):
            return self._until_ms
        lease_ms = self.terms.lease_ms
        sent_ms = self._sent_at(self._opening) if self._opening else None
        return (now_ms if sent_ms is None or now_ms >= sent_ms + lease_ms else sent_ms) + lease_ms

    def lends_loans_ms(self, now_ms: int) -> int:
        """Return for how many ms processes below may use what this one lends on of its loans: until its own end."""
        return min(LOAN_MS, max(0, self._loans_until_ms - now_ms))

    def share(self, key: str, now_ms: int) -> float:
        """Return the share (0 to 1) of the quota, or for a loan key of the capacity, that may be used now."""
        if is_loan(key):
            lent = now_ms < min(self._loans_until_ms, self._until_ms, self._live_until_ms)
            return self._shares.get(key, 0.0) if lent else 0.0
        if now_ms < self._until_ms:
            return self._granted(key) if now_ms < self._live_until_ms else self._first
        if self._until_ms < 0 and now_ms < self._begins_until_ms:
            return self._first
        return 1 / self._lessees_max if self._cut_off is None else self._cut_off

    def has(self, key: str) -> bool:
        """Whether the lessor has granted a share of this key, and not only the default share."""
        return key in self._shares

    @property
    def named(self) -> Iterable[str]:
        """The keys (quotas) of which the lessor has granted a share of their own, and the default key."""
        return self._shares.keys()

    def wish(self, wishes: Mapping[str, Wish]) -> None:
        """Replace this process's demands; the next report contains those that have changed."""
        if wishes != self._wishes:
            self._wishes = dict(wishes)

    def due(self, now_ms: int) -> bool:
        """Whether to send a report now: a period has passed since the last one, or there are changes to report."""
        if now_ms >= self._due_ms:
            return True
        last_ms = self._sent[-1][1] if self._sent else -GAP_MS_MIN
        return now_ms >= last_ms + GAP_MS_MIN and bool(self.session) and self._changed()

    def report(self, now_ms: int) -> Report:
        """Create the next report. Without a session it opens one, and grants for earlier reports are ignored."""
        self._number += 1
        self._sent.append((self._number, now_ms))
        self._due_ms = now_ms + (
            min(self.terms.period_ms, LOAN_MS // 4) if self._loans else self.terms.period_ms
        )
        self._acknowledged = self._applied
        if not self.session:
            self._opening, self._opened_cut_off = self._number, self.cut_off(now_ms)
            self._reported = dict(self._wishes)
            held = (
                self._held(now_ms) if self.leased(now_ms) else {DEFAULT_KEY: self.share(DEFAULT_KEY, now_ms)}
            )
            return Report(self.name, 0, self._number, 0, dict(self._wishes), held, self.terms.lessees_max)
        changed: dict[str, Wish | None] = {
            key: wish for key, wish in self._wishes.items() if wish != self._reported.get(key)
        }
        changed |= {key: None for key in self._reported if key not in self._wishes}
        self._reported = dict(self._wishes)
        return Report(
            self.name, self.session, self._number, self._applied, changed, {}, self.terms.lessees_max
        )

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Take the lessor's grants; returns False if they were ignored, because they do not belong to the open session.

        The caller then sets the shares at its limiters, and calls `confirm`.
        """
        if grants.complete:
            # Of a session that this process has opened with its last opening report, and that is not over.
            if self.session or not self._opening or grants.number < self._opening or grants.version != 1:
                return False
        elif grants.session != self.session or grants.version != self.version + 1:
            if grants.session == self.session and grants.version > self.version:
                self.lose()  # one is missing
            return False
        if grants.complete and self.cut_off(now_ms) and not self._opened_cut_off:
            self.lose()  # it uses more now than it has reported
            return False
        sent_ms = self._sent_at(grants.number)
        if sent_ms is None or now_ms >= max(self._until_ms, sent_ms + grants.lease_ms):
            self.lose()
            return False
        self._apply(grants, now_ms)
        self.version = grants.version
        if grants.shares:
            self._changed_with = grants.version
        self._until_ms = max(self._until_ms, sent_ms + grants.lease_ms)
        loans_until_ms = sent_ms + grants.loans_ms
        self._loans_until_ms = loans_until_ms if now_ms < loans_until_ms else -1
        self._lessees_max = max(grants.lessees_max, self.terms.lessees_max)
        self._due_ms = min(self._due_ms, sent_ms + self.terms.period_ms)
        return True

    def _apply(self, grants: Grants, now_ms: int) -> None:
        """Change the shares, and store the larger ones from before, which processes below may still use."""
        keys = self._shares.keys() | grants.shares.keys() if grants.complete else grants.shares.keys()
        before = {key: self.share(key, now_ms) for key in keys}  # without a lease too: processes below use it
        if grants.complete:
            self.session, self._shares, self._loans = grants.session, {}, set()
            self._applied = self._acknowledged = self._changed_with = 0
        for key, share in grants.shares.items():
            if share is None:
                self._shares.pop(key, None)
            else:
                self._shares[key] = share
            if is_loan(key):
                (self._loans.add if share else self._loans.discard)(key)
        for key, largest in before.items():
            if largest > self._granted(key):
                self._lowered[key] = max(largest, self._lowered.get(key, 0.0))

    def confirm(self) -> None:
        """Register that the shares taken so far are in force here and in all workers; the next report says so."""
        self._applied = self.version
        self._lowered.clear()

    def lose(self) -> None:
        """End the session, since the connection has ended or a message is missing. The lease lasts until its end.

        The next report is due as soon as the smallest gap between reports allows.
        """
        self.session = self._opening = 0
        self._due_ms = self._sent[-1][1] + GAP_MS_MIN if self._sent else 0

    def expire(self, now_ms: int) -> bool:
        """If the lease has ended, end the session and drop the shares; returns whether that happened now."""
        if self._until_ms < 0 or now_ms < self._until_ms or not self._shares:
            return False
        self.lose()
        self._shares = {}
        self._loans = set()
        self._lowered.clear()
        return True

    def _granted(self, key: str) -> float:
        """Return the share of a key according to the grants taken so far."""
        if is_loan(key):
            return self._shares.get(key, 0.0)
        share = self._shares.get(key)
        return self._shares[DEFAULT_KEY] if share is None else share

    def _held(self, now_ms: int) -> dict[str, float]:
        """Return the shares that may be in use here or in processes below; no loans that have ended."""
        held = self._shares | {key: max(share, self._granted(key)) for key, share in self._lowered.items()}
        if now_ms >= self._loans_until_ms:
            held = {key: share for key, share in held.items() if not is_loan(key)}
        return held

    def _sent_at(self, number: int) -> int | None:
        """Return the time at which the report of this number was sent; None if it is not remembered."""
        sent = self._sent
        index = number - self._number - 1  # from the end
        return sent[index][1] if -len(sent) <= index < 0 else None

    def _changed(self) -> bool:
        unsaid = self._acknowledged < self._changed_with <= self._applied
        return unsaid or self._wishes != self._reported
