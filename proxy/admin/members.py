"""`/v1/fleet`: the members of a fleet with their admin ports, from the document of `/fleet`. Pure."""

from collections.abc import Mapping
from typing import Any, Final

SILENT_SECONDS_MAX: Final = 5.0  # members report every second


def fleet_document(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the document.

    Args:
        state: what this member knows of its fleet; None if this process is no member of one.

    >>> fleet_document(None)["member"]
    False
    """
    if state is None:
        return {"member": False, "name": "", "holder": "", "members": [], "disagreements": []}
    return {
        "member": True,
        "name": state["name"],
        "holder": state["holder"] or "",
        "problem": state["problem"],
        "members": [_member(place, member, state) for place, member in enumerate(state["members"])],
        "disagreements": state["disagreements"],
    }


def _member(place: int, member: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": member["name"],
        "run": member["run"],
        "address": member.get("address", ""),
        "admin": member.get("admin", ""),
        "version": member.get("version", ""),
        "mode": member.get("mode", ""),
        "share": state["default_share"] if member["run"] == state["run"] else None,
        "shares": {key: shares[place] for key, shares in state["member_shares"].items()},
        "reachable": member["silent_seconds"] <= SILENT_SECONDS_MAX,
        "silent_seconds": member["silent_seconds"],
    }
