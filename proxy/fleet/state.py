"""The state of the fleet as a member knows it, as values of JSON (`sluice fleet`, `/v1/fleet`); pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from proxy.fleet.view import View
from quotas.sharing.lease_values import DEFAULT_KEY
from quotas.sharing.lessee import Lessee

_SHARES_SHOWN_MAX: Final = 64


def state_of(
    lessee: Lessee, view: View | None, disagreements: Iterable[str], now_ms: int
) -> Mapping[str, object]:
    """Return this member's leases, and the fleet according to the holder's last view.

    Args:
        view: the holder's last view; None before the first.
        disagreements: a sentence for each disagreement.
    """
    keys = sorted(key for key in lessee.named if key != DEFAULT_KEY)
    own: dict[str, object] = {
        "name": lessee.name.name,
        "run": f"{lessee.name.run:016x}",
        "leased": lessee.leased(now_ms),
        "cut_off": lessee.cut_off(now_ms),
        "lease_left_seconds": max(0, lessee.until_ms - now_ms) / 1000 if lessee.leased(now_ms) else 0,
        "default_share": lessee.share(DEFAULT_KEY, now_ms),
        "keys": len(keys),
        "shares": {key: lessee.share(key, now_ms) for key in keys[:_SHARES_SHOWN_MAX]},
        "disagreements": list(disagreements),
    }
    if view is None:
        return {**own, "learning": None, "members": [], "member_shares": {}}
    return {
        **own,
        "learning": view.learning,
        "members": [
            {
                "name": member.lessee.name,
                "run": f"{member.lessee.run:016x}",
                "silent_seconds": member.silent_ms / 1000,
                "present_seconds": member.present_s,
                **{fact: value for fact, value in member.facts.items() if fact not in ("name", "run")},
            }
            for member in view.members
        ],
        "member_shares": {key: list(shares) for key, shares in view.shares},
    }
