"""What the clients of one member get in each second while the other is killed, and while a control process is stopped.

The rig of `faults`: 2 members x 2 workers, one quota for each direction, more demand at each member than it allows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.bench.figures import per_second
from tests.bench.fleet.bound import below
from tests.bench.fleet.faults import Fault, Played, suspended
from tests.bench.fleet.rig import Member, Rig
from tests.bench.report import Bar, Outcome, tabulate

BELOW: Final = 0.9
SECONDS_MAX: Final = 3.0
KILLED_SECONDS: Final = 28.0
_LEASED: Final = 0.4  # of its equal share, a half
_BACK_SECONDS: Final = 12.0  # for its clients


def _killed(rig: Rig, choose: Callable[[Rig], Member]) -> Iterator[float]:
    member = choose(rig)
    member.kill()
    yield KILLED_SECONDS
    member.start()
    member.running.wait_ready()
    while member.running.metric("sluice_fleet_default_share") < _LEASED:
        yield 1.0
    yield _BACK_SECONDS


def _kill(name: str, what: str, choose: Callable[[Rig], Member]) -> Fault:
    label = f"{what} is killed; for {KILLED_SECONDS:g} s there is one less"
    return Fault(name, label, partial(_killed, choose=choose), KILLED_SECONDS)


def _stop(seconds: float) -> Fault:
    act = partial(suspended, seconds=seconds, after=10.0, workers=False)
    return Fault(
        f"stop {seconds:g} s", f"the holder's control process is stopped for {seconds:g} s", act, seconds
    )


KILLS: Final = (
    _kill("member", "a member", Rig.other),
    _kill("holder", "the holder", Rig.holder),
    _stop(1.0),
    _stop(5.0),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault made of one direction; rates as multiples of the quota."""

    fault: Fault
    direction: str
    rates: list[float]
    below: float


_COLUMNS: Final[Mapping[str, Callable[[Row], object]]] = {
    "fault": lambda row: row.fault.label,
    "direction": lambda row: row.direction,
    "seconds": lambda row: f"{row.fault.seconds:.0f}",
    "let through / quota": lambda row: f"{sum(row.rates) / len(row.rates):.3f}",
    "least second": lambda row: f"{min(row.rates):.2f}",
    f"below {BELOW:g} for": lambda row: f"{row.below:.1f} s",
}


def report(played: Played, quota: int) -> Outcome:
    """Return the table and the bars."""
    rows = []
    for fault, began, _ in played.marks:
        ended = began + fault.seconds
        for direction, each in played.directions.items():
            rates = [size / quota for size in per_second(each.passed, began, int(fault.seconds))]
            under = below(each.passed, BELOW * quota, began + 0.5, ended - 0.5, window=1.0)
            rows.append(Row(fault, direction, rates, under))
    bars = [
        Bar(f"{row.fault.name}, {row.direction}: below {BELOW:g} of the quota", row.below, SECONDS_MAX, "s")
        for row in rows
    ]
    title = f"A killed member: 2 × 2, quotas of {quota / 1e6:g} MB/s, requests of 50 kB"
    note = "In windows of one second; clients of the killed member are without one meanwhile."
    return Outcome([tabulate(title, rows, _COLUMNS, note)], bars)
