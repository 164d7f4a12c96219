"""The shares of one key: what each lessee may be using, what it wants, and what it is granted next.

A lessee *may be using* the larger of two shares: the last one that it has acknowledged, and the one sent after it. A
share is raised only by a part of the capacity that no lessee may be using, so the sum never exceeds the capacity, even
if messages are lost or late. At most one change of a part is under way.

A share of None follows the lessee's share of `DEFAULT_KEY`. Time, messages and sessions are in `lessor`.
"""

from collections.abc import Iterator
from typing import Final

from quotas.sharing.fill import fill
from quotas.sharing.lease_values import LesseeId, Wish

__all__ = ["KeyShares", "Part"]

# A share is lowered only if that changes it by this part, so that small changes of demand cost no messages.
_GAP: Final = 0.02
# A smaller part of the capacity is not worth a message; all parts together leave no more than that unused.
_GRAIN: Final = 0.002

Change = tuple[LesseeId, float | None]


class Part:
    """One lessee's part of a key.

    Attributes:
        share: the share that it has acknowledged; None if it follows its default share.
        sent: the share that was sent after that, if `version` is above 0.
        version: the version of the grants with `sent`; 0 if no change is under way.
        wish: its demand; None if it has none.
    """

    __slots__ = ("sent", "share", "version", "wish")

    def __init__(self, share: float | None, wish: Wish | None = None) -> None:
        self.share = share
        self.sent: float | None = None
        self.version = 0
        self.wish = wish

    def upper(self, default: float) -> float:
        """The largest share that the lessee may be using.

        Args:
            default: the largest share of the default key that it may be using.
        """
        share = default if self.share is None else self.share
        if not self.version:
            return share
        return max(share, default if self.sent is None else self.sent)


class KeyShares:
    """The parts of one key.

    Args:
        default: the parts of the default key; None if this is it.
    """

    __slots__ = ("_default", "parts")

    def __init__(self, default: "KeyShares | None") -> None:
        self._default = default
        self.parts: dict[LesseeId, Part] = {}

    def upper(self, lessee: LesseeId) -> float:
        """The largest share that a lessee may be using."""
        default = 0.0 if self._default is None else self._default.upper(lessee)
        return self.parts[lessee].upper(default)

    def used(self) -> float:
        """The largest share that all lessees together may be using."""
        return sum(self.upper(lessee) for lessee in self.parts)

    @property
    def has_demand(self) -> bool:
        """Whether any lessee has a demand."""
        return any(part.wish is not None for part in self.parts.values())

    def acknowledge(self, lessee: LesseeId, version: int) -> None:
        """Register that a lessee has applied the grants up to this version."""
        part = self.parts[lessee]
        if 0 < part.version <= version:
            part.share, part.version = part.sent, 0

    def divide(self, capacity: float, least: float) -> list[Change]:
        """Return the shares to send now, by demand; demands beyond the capacity are divided by weight.

        Capacity beyond the demands goes to the lessees with a demand, so that they have room to grow. A share is
        lowered when another lessee needs it, or when all together exceed the capacity. Without a demand no share is
        raised.
        """
        lessees = list(self.parts)
        parts = list(self.parts.values())
        uppers = [self.upper(lessee) for lessee in lessees]
        wanted = [
            0.0 if part.wish is None else max(0.0, min(1.0, part.wish.wanted) - least) for part in parts
        ]
        weights = [0.0 if part.wish is None else part.wish.weight for part in parts]
        room = max(0.0, capacity - least * len(parts))
        needed = [least + extra for extra in fill(wanted, weights, room)]
        left = max(0.0, capacity - sum(needed))
        weight = sum(weights)
        targets = [
            need + (left * own / weight if weight else 0.0) for need, own in zip(needed, weights, strict=True)
        ]
        free = capacity - sum(uppers)
        grain = capacity * _GRAIN
        lowers = free < -grain / 1000 or any(
            need - upper > max(upper * _GAP, grain) for need, upper in zip(needed, uppers, strict=True)
        )
        changes: list[Change] = []
        if lowers:
            changes += [
                (lessee, target)
                for lessee, part, upper, target in zip(lessees, parts, uppers, targets, strict=True)
                if not part.version and upper > target * (1 + _GAP)
            ]
        if free > grain:
            changes += self._raised(lessees, uppers, targets, free)
        return changes

    def equalize(self, share: float, capacity: float) -> list[Change]:
        """Return the shares to send now so that each lessee gets the same share (of the default key)."""
        uppers = {lessee: self.upper(lessee) for lessee in self.parts}
        changes: list[Change] = [
            (lessee, share)
            for lessee, upper in uppers.items()
            if upper > share and not self.parts[lessee].version
        ]
        free = capacity - sum(uppers.values())
        return [*changes, *self._raised(list(uppers), list(uppers.values()), [share] * len(uppers), free)]

    def release(self) -> list[Change]:
        """Return the shares to send now so that all lessees follow their default share again: first those above
        it come down, then all follow it.
        """
        assert self._default is not None, "the default key is not released"
        changes: list[Change] = []
        for lessee, part in self.parts.items():
            default = self._default.parts[lessee].share
            assert default is not None, "a default share is a number"
            if self.upper(lessee) > default and not part.version:
                changes.append((lessee, default))
        if changes or any(part.version and part.sent is not None for part in self.parts.values()):
            return changes
        return [
            (lessee, None)
            for lessee, part in self.parts.items()
            if part.share is not None and not part.version
        ]

    @property
    def released(self) -> bool:
        """Whether all lessees follow their default share."""
        return all(part.share is None and not part.version for part in self.parts.values())

    def _raised(
        self, lessees: list[LesseeId], uppers: list[float], targets: list[float], free: float
    ) -> Iterator[Change]:
        """Yield raised shares, the largest difference first, as far as the free part goes."""
        order = sorted(range(len(lessees)), key=lambda index: uppers[index] - targets[index])
        for index in order:
            gain = min(targets[index] - uppers[index], free)
            if gain <= 0:
                return
            if self.parts[lessees[index]].version:
                continue
            free -= gain
            yield lessees[index], uppers[index] + gain
