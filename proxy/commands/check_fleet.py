"""What `sluice check` says of `[fleet]`; pure."""

from collections.abc import Iterator, Mapping

from proxy.config import FleetOptions

__all__ = ["document", "lines"]


def lines(options: FleetOptions) -> Iterator[str]:
    """Yield lines on how quotas are shared with other processes; none if they are not shared."""
    if not options.configured:
        return
    where = "this process" if options.holds_by_name else str(options.holder)
    if options.holder is None:
        where = f"chosen by the group {options.group}"
    yield f"fleet: {options.own_name!r}, one of at most {options.members_max} members; the holder is {where}"
    if options.may_hold:
        signed = "signed" if options.secret_file else "not signed"
        yield f"  members reach it at {options.own_address}: {options.bind}, {signed}"


def document(options: FleetOptions) -> Mapping[str, object] | None:
    """Return the same as values of JSON; None without a fleet."""
    if not options.configured:
        return None
    return {
        "name": options.own_name,
        "members_max": options.members_max,
        "holder": None if options.holder is None else str(options.holder),
        "group": options.group if options.holder is None else None,
        "holds": options.holds_by_name,
        "cut_off": options.cut_off,
    }
