"""The confidence of a recommendation, from the recorded time and clients, and their distance to the quota. Pure."""

from collections.abc import Sequence
from typing import Final

__all__ = ["CLIENTS_FEW", "confidence", "lowest"]

HOUR_S: Final = 3600
DAY_S: Final = 86_400
WEEK_S: Final = 7 * DAY_S
CLIENTS_FEW: Final = 20
NEAR: Final = 0.2  # the relative distance to the quota that counts as near
NEAR_SHARE: Final = 0.1
_GRADES: Final = ("high", "medium", "low")


def confidence(
    *, seconds: int, clients: int, sample: float = 1.0, quota: float = 0.0, needs: Sequence[float] = ()
) -> str:
    """Return `high`, `medium` or `low`, with the reason.

    >>> confidence(seconds=8 * 86_400, clients=500)
    'high: 8.0 days of 500 clients'
    >>> confidence(seconds=1800, clients=500, sample=0.1)
    'low: 30 minutes recorded, so no daily peak; a tenth of a sample or less, so loads are estimates'
    """
    doubts: list[tuple[int, str]] = []
    if seconds < DAY_S:
        length = f"{seconds} s"
        if seconds >= 2 * HOUR_S:
            length = f"{seconds / HOUR_S:.0f} hours"
        elif seconds >= 300:
            length = f"{seconds / 60:.0f} minutes"
        doubts.append((2 if seconds < HOUR_S else 1, f"{length} recorded, so no daily peak"))
    elif seconds < WEEK_S:
        doubts.append((1, f"{seconds / DAY_S:.1f} days recorded, so no weekly peak"))
    if clients < CLIENTS_FEW:
        few = "1 client" if clients == 1 else f"{clients} clients"
        doubts.append((1, f"{few}, so each is a large share"))
    if sample < 1:
        words = "a tenth of a sample or less" if sample <= 0.1 else f"a sample of {sample:.2f}"
        doubts.append((2, f"{words}, so loads are estimates"))
    near = sum(abs(need - quota) <= NEAR * quota for need in needs) if quota else 0
    if needs and near > NEAR_SHARE * len(needs):
        doubts.append((1, f"{near} clients need within 20 % of it"))
    grade = max((weight for weight, _ in doubts), default=0)
    if not doubts:
        return f"high: {seconds / DAY_S:.1f} days of {clients} clients"
    return f"{_GRADES[grade]}: {'; '.join(text for _, text in doubts)}"


def lowest(confidences: Sequence[str]) -> str:
    """Return the lowest confidence, the first of equal ones; "" if there is none.

    >>> lowest(["high: 8.0 days of 500 clients", "medium: 3 clients, so each is a large share"])
    'medium: 3 clients, so each is a large share'
    """
    return max(confidences, key=lambda text: _GRADES.index(text.partition(":")[0]), default="")
