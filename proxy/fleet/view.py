"""The fleet as the holder shows it to its members, for display: members and shares; pure.

    view        learning u8, members u16, then of each: name text u8, run u64, silent_ms u32, present_s u32, facts
                keys u16, then of each: key text u16, the share of each member f64

A view has only the first KEYS_SHOWN_MAX keys by name. No decision depends on it.
"""

import struct
from typing import Final, NamedTuple

from proxy.fleet.codec import (
    KEY_BYTES_MAX,
    LESSEES_MAX,
    NAME_BYTES_MAX,
    VIEW_KIND,
    Content,
    Facts,
    head,
    read_facts,
    text,
    write_facts,
)
from quotas.sharing.lease_values import LesseeId

KEYS_SHOWN_MAX: Final = 64
_MEMBER: Final = struct.Struct(">QII")
_U32_MAX: Final = 2**32 - 1
_MEMBERS_MAX: Final = 2 * LESSEES_MAX


class MemberView(NamedTuple):
    """A member as the holder sees it.

    Args:
        silent_ms: the time since its last report, in ms.
        present_s: the time since its first report, in seconds.
        facts: the facts that it has sent about itself.
    """

    lessee: LesseeId
    silent_ms: int
    present_s: int
    facts: Facts


class View(NamedTuple):
    """The fleet as the holder sees it.

    Args:
        learning: whether the holder has just begun, and raises no share yet.
        shares: by key, the largest share that each member may be using, in the members' order.
    """

    learning: bool
    members: tuple[MemberView, ...]
    shares: tuple[tuple[str, tuple[float, ...]], ...]


def write_view(view: View) -> bytes:
    """Encode a view."""
    parts = [head(VIEW_KIND), bytes((view.learning,)), len(view.members).to_bytes(2)]
    for member in view.members:
        parts += (
            text(member.lessee.name, NAME_BYTES_MAX, 1),
            _MEMBER.pack(member.lessee.run, min(member.silent_ms, _U32_MAX), min(member.present_s, _U32_MAX)),
            write_facts(member.facts),
        )
    parts.append(len(view.shares).to_bytes(2))
    for key, shares in view.shares:
        parts += (text(key, KEY_BYTES_MAX, 2), struct.pack(f">{len(shares)}d", *shares))
    return b"".join(parts)


def read_view(message: bytes) -> View:
    """Decode a view; its kind has been read already.

    Raises:
        MessageError: it is malformed.
    """
    content = Content(message)
    learning = bool(content.number(1))
    members = []
    for _ in range(content.count(_MEMBERS_MAX)):
        name = content.name()
        run, silent_ms, present_s = content.unpack(_MEMBER)
        members.append(MemberView(LesseeId(name, run), silent_ms, present_s, read_facts(content)))
    shares = tuple(
        (content.text(2, KEY_BYTES_MAX), tuple(content.share() for _ in members))
        for _ in range(content.count(KEYS_SHOWN_MAX))
    )
    content.end()
    return View(learning, tuple(members), shares)
