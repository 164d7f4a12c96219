"""The simulation of fleets finds defects that are put into the leases: else its silence would say nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from quotas.limiters.schedule import ScheduledLimiter
from quotas.sharing.key_shares import Part
from quotas.sharing.lease_values import Grants, LesseeId
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member
from tests.simulation.fleet_faults import ALL_FAULTS, NO_CUT_OFF, SHORT_MS, Faults
from tests.simulation.fleet_processes import Holder
from tests.simulation.fleet_world import chaotic

SEEDS_MAX: Final = 100
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


RIFTS: Final = replace(ALL_FAULTS, rifts=0.03, stops=0.0)
LAGS: Final = replace(ALL_FAULTS, lag_ms_max=3 * SHORT_MS, stops=0.0)
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
