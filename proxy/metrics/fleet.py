"""The figures of a fleet for /metrics: this member's leases, and those of all members at the holder.

`proxy.metrics.exposition` writes the text.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from proxy.metrics.replication import Family
from quotas.sharing.lease_values import DEFAULT_KEY
from quotas.sharing.lessee import Lessee

SHARES_SHOWN_MAX: Final = 64  # keys, by name
GROUP_CAUSES: Final = ("unreachable", "denied", "cleanup_policy", "version", "unsigned", "failed")

UNSIGNED: Final = ("claim", "ruling", "commit")


class FleetFigures:
    """Counters and states of one member.

    Attributes:
        reports: this member's reports, by result.
        received: reports and connections at the holder, by result.
        ended: members and holders that this process has found to have ended, by sign.
        members: those that the holder has heard from within one lease; 0 at other members.
        holds: whether this member is the holder.
        disagreements: the number of facts in which members differ.
        unsigned: what was ignored in the group: claims, rulings, commits.
        group_problem: why the group cannot be used, one of GROUP_CAUSES; "" if it can, or there is none.
    """

    def __init__(self) -> None:
        self.reports: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.members = 0
        self.holds = False
        self.disagreements = 0
        self.unsigned: Counter[str] = Counter()
        self.group_problem = ""


class FleetMetrics:
    """The metrics of one member.

    Args:
        lessee: this member's leases.
        now_ms: the clock of leases.
    """

    def __init__(self, figures: FleetFigures, lessee: Lessee, now_ms: Callable[[], int]) -> None:
        self._figures = figures
        self._lessee = lessee
        self._now_ms = now_ms

    def families(self) -> Iterator[Family]:
        """Return the metrics."""
        figures, lessee, now_ms = self._figures, self._lessee, self._now_ms()
        for name, text, value in (
            (
                "holder",
                "1 if this member is the fleet's holder, which leases shares to all members",
                figures.holds,
            ),
            (
                "members",
                "Members that the holder has heard from within one lease; at the holder",
                figures.members,
            ),
            ("leased", "1 while this member has a lease from the holder", lessee.leased(now_ms)),
            (
                "cut_off",
                "1 while this member has had no lease for so long that others use what it had",
                lessee.cut_off(now_ms),
            ),
            (
                "lease_left_seconds",
                "Remaining time of the lease; 0 without one",
                max(0, lessee.until_ms - now_ms) / 1000 if lessee.leased(now_ms) else 0,
            ),
            ("keys", "Quotas with shares of their own, by demand", len(self._keys())),
            ("default_share", "Share of each other quota, 0 to 1", lessee.share(DEFAULT_KEY, now_ms)),
            (
                "disagreements",
                "Things in which members differ, as the holder last told",
                figures.disagreements,
            ),
        ):
            yield Family(f"sluice_fleet_{name}", "gauge", text, (), [((), float(value))])
        yield Family(
            "sluice_fleet_share",
            "gauge",
            "Share of a quota that this member may use, 0 to 1; of the first quotas by name",
            ("key",),
            [((key,), lessee.share(key, now_ms)) for key in self._keys()[:SHARES_SHOWN_MAX]],
        )
        yield Family(
            "sluice_fleet_group_problem",
            "gauge",
            "1 while the group that chooses the holder cannot be used, by cause",
            ("cause",),
            [((cause,), float(cause == figures.group_problem)) for cause in GROUP_CAUSES],
        )
        yield Family(
            "sluice_fleet_unsigned",
            "counter",
            "What was ignored in the group that chooses the holder, since it is not signed with the fleet's secret",
            ("what",),
            [((what,), float(figures.unsigned[what])) for what in UNSIGNED],
        )
        yield _counter(
            "sluice_fleet_reports", "Reports of this member to the holder, by result", figures.reports
        )
        yield _counter(
            "sluice_fleet_received_reports",
            "Reports and connections of members at the holder, by result",
            figures.received,
        )

        yield Family(
            "sluice_fleet_ended",
            "counter",
            "Processes of the fleet that this member has found to have ended without a word, by sign",
            ("sign",),
            [((sign,), figures.ended[sign]) for sign in ("refused", "replaced", "holder")],
        )

    def _keys(self) -> list[str]:
        return sorted(key for key in self._lessee.named if key != DEFAULT_KEY)


def _counter(name: str, text: str, counts: Counter[str]) -> Family:
    return Family(
        name, "counter", text, ("result",), [((result,), count) for result, count in sorted(counts.items())]
    )
