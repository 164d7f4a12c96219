"""The simulation of fleets finds defects that are put into the leases: else its silence would say nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from quotas.limiters.schedule import ScheduledLimiter
from quotas.sharing import lessor
from quotas.sharing.lease_values import Grants, LesseeId
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor, Part
from quotas.sharing.member import Member
from tests.simulation.fleet_faults import ALL_FAULTS, NO_CUT_OFF, SHORT_MS, Faults
from tests.simulation.fleet_processes import Holder
from tests.simulation.fleet_world import World, chaotic

SEEDS_MAX: Final = 400  # the rarest is found by one seed in a hundred
Defect = Callable[[pytest.MonkeyPatch], None]


def no_tenure(patch: pytest.MonkeyPatch) -> None:
    """A holder takes members for gone that have another holder."""
    patch.setattr(Lessor, "confirm", lambda *_: None)


def no_end(patch: pytest.MonkeyPatch) -> None:
    """A holder goes on without confirmation."""
    patch.setattr(Holder, "over", lambda self: not self.alive)


def long_lease(patch: pytest.MonkeyPatch) -> None:
    """A worker's lease may end after its member's."""

    def grants(self: Member, now_ms: int) -> Iterator[tuple[LesseeId, Grants]]:
        self._step(now_ms)
        yield from self.workers.grants(now_ms)

    patch.setattr(Member, "grants", grants)


def full_burst(patch: pytest.MonkeyPatch) -> None:
    """A process begins with a burst."""
    patch.setattr(ScheduledLimiter, "begin_empty", lambda *_: None)


def nothing_learned(patch: pytest.MonkeyPatch) -> None:
    """A holder that ends says that no lease lasts."""
    patch.setattr(Lessor, "lasting_ms", lambda *_: 0)


def predecessor_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A holder that ends says nothing of its predecessor's leases."""

    def lasting_ms(self: Lessor, now_ms: int) -> int:
        return max((lessee.until_ms - now_ms for lessee in self._lessees.values()), default=0)

    patch.setattr(Lessor, "lasting_ms", lasting_ms)


def lowered_too_late(patch: pytest.MonkeyPatch) -> None:
    """A share counts as lowered before that is acknowledged."""
    patch.setattr(Part, "upper", lambda self, default: default if self.share is None else self.share)


def ended_when_closed(patch: pytest.MonkeyPatch) -> None:
    """A member whose connection is closed is taken for ended, without a look at its port."""
    patch.setattr(World, "refuses", lambda *_: True)


def silence_believed(patch: pytest.MonkeyPatch) -> None:
    """A port that does not respond is taken for closed."""
    patch.setattr(World, "refuses", lambda self, place: not self.responds(place))


def workers_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The shares of a member that has ended are free before its workers can have seen it."""
    patch.setattr(lessor, "GONE_MS", 0)


def no_look(patch: pytest.MonkeyPatch) -> None:
    """A worker uses its shares to the end of its lease, whatever became of control."""
    patch.setattr(Lessee, "live", lambda *_: False)


def learned_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A holder ends learning when one lessee of its predecessor has reported."""

    def learn(self: Lessor, _now_ms: int) -> None:
        if self._lessees:
            self._awaited, self._learning_until_ms = frozenset(), -1

    patch.setattr(Lessor, "_learn", learn)


def not_enlisted(patch: pytest.MonkeyPatch) -> None:
    """A holder leases to a newcomer before that is committed."""
    patch.setattr(Lessor, "enlist", lambda *_: None)


RIFTS: Final = replace(ALL_FAULTS, rifts=0.04, moves=0.0, kills=0.0, waves=0.05, stops=0.0)
LAGS: Final = replace(ALL_FAULTS, lag_ms_max=3 * SHORT_MS, stops=0.0)
RESETS: Final = replace(ALL_FAULTS, resets=0.03, stops=0.0)
PAUSES: Final = replace(ALL_FAULTS, resets=0.03, pauses=0.02, waves=0.05, stops=0.0)
KILLS: Final = replace(ALL_FAULTS, kills=0.02, waves=0.05, unlisted=0.0, delay_ms_max=20, stops=0.0)
NEWCOMERS: Final = replace(ALL_FAULTS, kills=0.02, moves=0.04, doubts=0.4, lag_ms_max=3 * SHORT_MS, stops=0.0)
MOVES: Final = replace(ALL_FAULTS, moves=0.04, stops=0.0)


@pytest.mark.parametrize(
    ("defect", "faults"),
    [
        pytest.param(defect, faults, id=defect.__name__)
        for defect, faults in (
            (no_tenure, RIFTS),
            (no_end, LAGS),
            (long_lease, ALL_FAULTS),
            (full_burst, replace(NO_CUT_OFF, gulps=0.08)),
            (nothing_learned, MOVES),
            (predecessor_forgotten, MOVES),
            (lowered_too_late, ALL_FAULTS),
            (ended_when_closed, RESETS),
            (silence_believed, PAUSES),
            (workers_forgotten, KILLS),
            (no_look, KILLS),
            (learned_too_soon, MOVES),
            (not_enlisted, NEWCOMERS),
        )
    ],
)
def test_a_defect_is_found(defect: Defect, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    assert any(fails(seed, faults) for seed in range(SEEDS_MAX))


def fails(seed: int, faults: Faults) -> bool:
    """Return whether a seed breaks the bound in shares or in bytes."""
    try:
        return chaotic(seed, faults).ledger.worst > 1 and not faults.cuts
    except AssertionError:
        return True
