"""What the clients of one member get in each second while the other is killed, and while a control process is stopped.

The rig of `faults`: 2 members x 2 workers, one quota for each direction, more demand at each member than it allows.
"""

from collections.abc import Iterator
from typing import Final

from tests.bench.figures import Event, per_second
from tests.bench.fleet.bound import below
from tests.bench.fleet.faults import Direction, Fault, Played
from tests.bench.fleet.rig import Member, Rig
from tests.bench.report import Bar, Outcome, Table

BELOW: Final = 0.9
SECONDS_MAX: Final = 3.0
KILLED_SECONDS: Final = 28.0
_LEASED: Final = 0.4  # of its equal share, a half
_BACK_SECONDS: Final = 12.0  # for its clients
_AFTER_SECONDS: Final = 10.0
_STOPS_SECONDS: Final = (1.0, 5.0)


def _killed(member: Member) -> Iterator[float]:
    member.kill()
    yield KILLED_SECONDS
    member.start()
    member.running.wait_ready()
    while member.running.metric("sluice_fleet_default_share") < _LEASED:
        yield 1.0
    yield _BACK_SECONDS


def _member(rig: Rig) -> Iterator[float]:
    yield from _killed(rig.other())


def _holder(rig: Rig) -> Iterator[float]:
    yield from _killed(rig.holder())


def _stop(rig: Rig, seconds: float) -> Iterator[float]:
    holder = rig.holder()
    holder.suspend(workers=False)
    yield seconds
    holder.resume(workers=False)
    yield _AFTER_SECONDS


def _stop_1(rig: Rig) -> Iterator[float]:
    yield from _stop(rig, _STOPS_SECONDS[0])


def _stop_5(rig: Rig) -> Iterator[float]:
    yield from _stop(rig, _STOPS_SECONDS[1])


KILLS: Final = (
    Fault("member", f"a member is killed; for {KILLED_SECONDS:g} s there is one less", _member),
    Fault("holder", f"the holder is killed; for {KILLED_SECONDS:g} s there is one less", _holder),
    Fault("stop 1 s", "the holder's control process is stopped for 1 s", _stop_1),
    Fault("stop 5 s", "the holder's control process is stopped for 5 s", _stop_5),
)
_MEASURED: Final = {"member": KILLED_SECONDS, "holder": KILLED_SECONDS, "stop 1 s": 1.0, "stop 5 s": 5.0}


def report(played: Played, quota: int) -> Outcome:
    """Return the table and the bars."""
    labels = {fault.name: fault.label for fault in KILLS}
    cells, bars = [], []
    for name, began, _ in played.marks:
        ended = began + _MEASURED[name]
        for direction, each in played.directions.items():
            passed = _passed(each)
            seconds = [size / quota for size in per_second(passed, began, int(ended - began))]
            under = below(passed, BELOW * quota, began + 0.5, ended - 0.5, window=1.0)
            cells.append(
                (
                    *(labels[name], direction, f"{ended - began:.0f}"),
                    f"{sum(seconds) / len(seconds):.3f}",
                    f"{min(seconds):.2f}",
                    f"{under:.1f} s",
                )
            )
            bars.append(Bar(f"{name}, {direction}: below {BELOW:g} of the quota", under, SECONDS_MAX, "s"))
    columns = ("fault", "direction", "seconds", "let through / quota", "least second", f"below {BELOW:g} for")
    title = f"A killed member: 2 × 2, quotas of {quota / 1e6:g} MB/s, requests of 50 kB"
    note = "In windows of one second; clients of the killed member are without one meanwhile."
    return Outcome([Table(title, columns, tuple(cells), note)], bars)


def _passed(each: Direction) -> list[Event]:
    return [(last, size) for _, last, size in each.let_through]
