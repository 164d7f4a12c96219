"""What a section hands back: tables of text, and bars with a measured value and a limit."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MISSING: Final = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the report; every row has one text a column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that must hold.

    Args:
        measured: None when it could not be measured; then the bar is not met.
        at_least: the limit is a lower one.
    """

    name: str
    measured: float | None
    limit: float
    unit: str = "×"
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the bar is met."""
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def verdict(self) -> str:
        """Return `pass`, or by how much it was missed.

        >>> Bar("cost", 1.25, 1.0).verdict
        'MISSED by 25 %'
        >>> Bar("fairness", 0.97, 0.98, at_least=True).verdict
        'MISSED by 1 %'
        """
        if self.passed:
            return "pass"
        if self.measured is None:
            return "NOT MEASURED"
        if not self.limit:
            return "MISSED"
        return f"MISSED by {abs(self.measured - self.limit) / self.limit * 100:.0f} %"

    def row(self) -> tuple[str, str, str, str]:
        """Return name, limit, measured and verdict as texts."""
        sign = "≥" if self.at_least else "≤"
        measured = MISSING if self.measured is None else f"{self.measured:.3g} {self.unit}"
        return self.name, f"{sign} {self.limit:g} {self.unit}", measured, self.verdict


@dataclass(slots=True)
class Outcome:
    """Everything one or more sections found."""

    tables: list[Table] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def add(self, others: Iterable["Outcome"]) -> None:
        """Append what other sections found."""
        for other in others:
            self.tables += other.tables
            self.bars += other.bars


def ratio(value: float | None, base: float | None) -> float | None:
    """Return `value / base`, or None where either is missing or the base is nothing.

    >>> ratio(1.0, 2.0), ratio(1.0, None)
    (0.5, None)
    """
    return value / base if value is not None and base else None
