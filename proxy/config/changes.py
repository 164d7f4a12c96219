"""The differences of two configurations, and which of them apply without a restart."""

from dataclasses import Field, dataclass, fields, replace
from typing import Final

from proxy.config.keys import key_of
from proxy.config.options import Config

SECTIONS: Final = (
    "cluster",
    "quotas",
    "replication",
    "fleet",
    "reassignment",
    "capture",
    "limits",
    "process",
    "admin",
    "state",
    "log",
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Key paths whose values differ.

    Args:
        live: the keys that apply now.
        restart: the keys that need a restart; until then their old values apply.
    """

    live: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def compare(old: Config, new: Config) -> Changes:
    """Return the changed keys, in the order of the documentation."""
    live: list[str] = []
    restart: list[str] = []
    for name in SECTIONS:
        before, after = getattr(old, name), getattr(new, name)
        for field in fields(before):
            if getattr(before, field.name) != getattr(after, field.name):
                (live if _is_live(field) else restart).append(f"{name}.{field.name}")
    return Changes(tuple(live), tuple(restart) + _listeners(old, new))


def merge_live(old: Config, new: Config) -> Config:
    """Return the configuration after a reload: the new one's live keys, and the old one's other keys."""
    merged = new
    for name in SECTIONS:
        before = getattr(old, name)
        kept = {field.name: getattr(before, field.name) for field in fields(before) if not _is_live(field)}
        # For all sections alike, so that no new key can be missed here.
        merged = replace(merged, **{name: replace(getattr(merged, name), **kept)})
    return replace(merged, listeners=old.listeners)


def _listeners(old: Config, new: Config) -> tuple[str, ...]:
    if len(old.listeners) != len(new.listeners):
        return ("listeners",)
    return tuple(
        f"listeners[{index}].{field.name}"
        for index, (before, after) in enumerate(zip(old.listeners, new.listeners, strict=True))
        for field in fields(before)
        if getattr(before, field.name) != getattr(after, field.name)
    )


def _is_live(field: Field[object]) -> bool:
    found = key_of(field)
    return found is not None and found.live
