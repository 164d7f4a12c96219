"""The figures of a fleet for /metrics: this member's leases, and those of all members at the holder.

`proxy.metrics.exposition` writes the text.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from proxy.metrics.families import Family, by_label, single
from quotas.sharing.lease_values import DEFAULT_KEY
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts

SHARES_SHOWN_MAX: Final = 64  # keys, by name
GROUP_CAUSES: Final = ("unreachable", "denied", "cleanup_policy", "version", "unsigned", "failed")

UNSIGNED: Final = ("claim", "ruling", "commit")


# Names without "sluice_fleet_", and texts; those with a label have it between.
_GAUGES: Final = (
    ("holder", "1 if this member is the fleet's holder, which leases shares to all members"),
    (
        "parts",
        "Parts of the keys of which this member is the holder; 1 at the holder of a fleet with one part",
    ),
    ("members", "Members that the holder has heard from within one lease; at the holder"),
    ("leased", "1 while this member has a lease from the holder"),
    ("cut_off", "1 while this member has had no lease for so long that others use what it had"),
    ("lease_left_seconds", "Remaining time of the lease; 0 without one"),
    ("keys", "Quotas with shares of their own, by demand"),
    ("default_share", "Share of each other quota, 0 to 1"),
    ("disagreements", "Things in which members differ, as the holder last told"),
)
_BY_LABEL: Final = (
    (
        *("share", "gauge", "key"),
        "Share of a quota that this member may use, 0 to 1; of the first quotas by name",
    ),
    ("group_problem", "gauge", "cause", "1 while the group that chooses the holder cannot be used, by cause"),
    (
        *("unsigned", "counter", "what"),
        "What was ignored in the group that chooses the holder, since it is not signed with the fleet's secret",
    ),
    ("reports", "counter", "result", "Reports of this member to the holder, by result"),
    ("received_reports", "counter", "result", "Reports and connections of members at the holder, by result"),
    (
        *("ended", "counter", "sign"),
        "Processes of the fleet that this member has found to have ended without a word, by sign",
    ),
)


class FleetFigures:
    """Counters and states of one member of a fleet, for its metrics.

    A fleet's members share quotas: one of them, the holder, leases a share of each quota to every member.

    Attributes:
        reports: the number of this member's reports to the holder, by result.
        received: at the holder, the number of reports and connections of members, by result.
        ended: how many members this process, as the holder, has seen end, by how it noticed (`proxy.fleet.ends`);
            with the key `holder`, how many holders it has seen end.
        members: the number of members that the holder has heard from within one lease; 0 at other members.
        holds: whether this member is the holder; of the first part, if there are several.
        parts: of how many parts of the keys this member is the holder.
        disagreements: the number of facts in which members differ.
        unsigned: the number of ignored messages in the consumer group that chooses the holder, which are not signed
            with the fleet's secret: by what they are (claims, rulings, commits).
        group_problem: why that group cannot be used, one of GROUP_CAUSES; "" if it can, or there is no group.
    """

    def __init__(self) -> None:
        self.reports: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.members = 0
        self.parts = 0
        self.holds = False
        self.disagreements = 0
        self.unsigned: Counter[str] = Counter()
        self.group_problem = ""


class FleetMetrics:
    """The metrics of one member of a fleet.

    Args:
        lessee: the shares of quotas that this member has leased from the holder.
        now_ms: the clock of the leases.
    """

    def __init__(self, figures: FleetFigures, lessee: Lessee | Parts, now_ms: Callable[[], int]) -> None:
        self._figures = figures
        self._lessee = lessee
        self._now_ms = now_ms

    def families(self) -> Iterator[Family]:
        """Yield the member's metric families: its leases and shares, its counters, and whether it is the holder."""
        figures, lessee, now_ms = self._figures, self._lessee, self._now_ms()
        keys = sorted(key for key in lessee.named if key != DEFAULT_KEY)
        leased = lessee.leased(now_ms)
        values = {
            "holder": figures.holds,
            "parts": figures.parts,
            "members": figures.members,
            "leased": leased,
            "cut_off": lessee.cut_off(now_ms),
            "lease_left_seconds": max(0, lessee.until_ms - now_ms) / 1000 if leased else 0,
            "keys": len(keys),
            "default_share": lessee.share(DEFAULT_KEY, now_ms),
            "disagreements": figures.disagreements,
        }
        for name, text in _GAUGES:
            yield single(f"sluice_fleet_{name}", "gauge", text, float(values[name]))
        counts: Mapping[str, Mapping[str, float]] = {
            "share": {key: lessee.share(key, now_ms) for key in keys[:SHARES_SHOWN_MAX]},
            "group_problem": {cause: float(cause == figures.group_problem) for cause in GROUP_CAUSES},
            "unsigned": {what: figures.unsigned[what] for what in UNSIGNED},
            "reports": figures.reports,
            "received_reports": figures.received,
            "ended": {sign: figures.ended[sign] for sign in ("refused", "replaced", "holder")},
        }
        for name, kind, label, text in _BY_LABEL:
            yield by_label(f"sluice_fleet_{name}", kind, text, label, counts[name])
