"""The choice of a fleet's holder by a Kafka group: the claims of members, the choice, the tenure; pure.

Each member joins with a *claim*: its name, its address, and the term in which it is the holder, if it is. The group's
leader chooses the holder (`choose`) and tells all members by a *ruling*. The holder of the latest term stays the holder
as long as it is a member.

A chosen member is the holder for a *tenure* after its last confirmation by Kafka, and not longer (`Standing`), since a
group does not notify a member that it has expelled. Two holders at once are safe if each ends its tenure in time
(`quotas.sharing.lessor`).

A holder's commit states how long leases may last after it (`write_lasting`); the group stores only the latest commit. A
holder grants no lease before its first commit, and Kafka refuses commits of earlier generations. So a new holder that
reads the latest commit after it was chosen knows how long it has to learn: not at all if there is no commit, or if the
last holder has ended after all its members.
"""

import re
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.config import Address
from proxy.fleet.codec import NAME_BYTES_MAX, Content, MessageError, text

__all__ = [
    "Claim",
    "Ruling",
    "Standing",
    "choose",
    "read_claim",
    "read_lasting",
    "read_ruling",
    "write_claim",
    "write_lasting",
    "write_ruling",
]

_VERSION: Final = 1
_HOST_BYTES_MAX: Final = 255
_TERM: Final = struct.Struct(">Q")
_PORT_BYTES: Final = 2
_LASTING: Final = re.compile(r"leases_ms=([0-9]{1,7})(?: .*)?", re.DOTALL)


class Claim(NamedTuple):
    """The message of a member that joins.

    Args:
        address: where other members reach it; None if it cannot be the holder.
        term: the term in which it is the holder; 0 if it is not.
    """

    name: str
    address: Address | None
    term: int


class Ruling(NamedTuple):
    """The choice, as all members receive it.

    Args:
        address: the holder's address; None if no member can be the holder.
        term: counts changes of the holder.
    """

    name: str
    address: Address | None
    term: int


def choose(claims: Mapping[str, Claim]) -> tuple[str | None, Ruling]:
    """Choose the holder: the one of the latest term, or the first by name.

    Args:
        claims: by member id.

    Returns: its member id, None if no member can be the holder; and the ruling for all members.

    >>> b, c = Claim("b", Address("b", 1), 0), Claim("c", Address("c", 1), 4)
    >>> choose({"id-b": b, "id-c": c})
    ('id-c', Ruling(name='c', address=Address(host='c', port=1), term=4))
    >>> choose({"id-b": b, "id-a": Claim("a", None, 0)})
    ('id-b', Ruling(name='b', address=Address(host='b', port=1), term=1))
    """
    latest = max((claim.term for claim in claims.values()), default=0)
    able = {member: claim for member, claim in claims.items() if claim.address is not None}
    if not able:
        return None, Ruling("", None, latest)
    member = min(able, key=lambda member: (-able[member].term, able[member].name, member))
    claim = able[member]
    # Another holder than that of the latest term begins a new one.
    term = latest if claim.term == latest and latest else latest + 1
    return member, Ruling(claim.name, claim.address, term)


def write_claim(claim: Claim) -> bytes:
    """Encode a claim."""
    return _write(claim.name, claim.address, claim.term)


def read_claim(data: bytes) -> Claim | None:
    """Decode a claim; None if it is not one of this version."""
    found = _read(data)
    return None if found is None else Claim(*found)


def write_ruling(ruling: Ruling) -> bytes:
    """Encode a ruling."""
    return _write(ruling.name, ruling.address, ruling.term)


def read_ruling(data: bytes) -> Ruling | None:
    """Decode a ruling; None if it is not one of this version."""
    found = _read(data)
    return None if found is None else Ruling(*found)


def write_lasting(lasting_ms: int, name: str) -> str:
    """Encode the metadata of a holder's commit: how long leases may last after it.

    >>> write_lasting(20_310, "gw-1")
    'leases_ms=20310 holder=gw-1'
    """
    return f"leases_ms={lasting_ms} holder={name}"


def read_lasting(committed: str) -> int | None:
    """Decode the metadata of a holder's commit; None if it has no such time.

    >>> read_lasting("leases_ms=20310 holder=gw-1"), read_lasting("gw-1")
    (20310, None)
    """
    found = _LASTING.fullmatch(committed)
    return None if found is None else int(found[1])


class Standing:
    """One member's knowledge of the holder.

    Args:
        tenure_ms: how long this member is the holder without a further confirmation.
        lasting_ms: how long leases may last after a confirmation.

    Attributes:
        ruling: the last one; None before the first.
    """

    def __init__(self, tenure_ms: int, lasting_ms: int) -> None:
        self._tenure_ms = tenure_ms
        self._lasting_ms = lasting_ms
        self._learning_ms: int | None = None
        self._confirmed_ms: int | None = None
        self._mine = False
        self._first = True  # no ruling has named another holder, and this member never was one
        self.ruling: Ruling | None = None

    @property
    def asks(self) -> bool:
        """Whether this member was chosen, and has to read what its predecessor has committed."""
        return self._mine and self._learning_ms is None

    @property
    def holder(self) -> Address | None:
        """The address of the holder, as far as this member knows."""
        return None if self.ruling is None else self.ruling.address

    def holds(self, now_ms: int) -> bool:
        """Whether this member is the holder now."""
        if self._confirmed_ms is not None and now_ms >= self._confirmed_ms + self._tenure_ms:
            self._confirmed_ms = None
        return self._confirmed_ms is not None

    def term(self, now_ms: int) -> int:
        """The term in which this member is the holder; 0 if it is not."""
        return self.ruling.term if self.ruling is not None and self.holds(now_ms) else 0

    def rule(self, ruling: Ruling, now_ms: int, *, mine: bool) -> None:
        """Take a ruling.

        Args:
            mine: whether it makes this member the holder.
        """
        held = self.holds(now_ms) and self.ruling is not None and self.ruling.term == ruling.term
        self._first = self._first and (mine or not ruling.name)
        self.ruling, self._mine, self._learning_ms = ruling, mine, None
        if not mine:
            self._confirmed_ms = None
        elif not held:
            self._confirmed_ms = now_ms

    def succeed(self, committed: str | None) -> None:
        """Take the predecessor's commit; None if the group has no commit.

        If there is none although this member has known a holder, the commit was deleted together with its topic.
        """
        learning_ms = read_lasting(committed) if committed is not None else 0 if self._first else None
        self._learning_ms = self._lasting_ms if learning_ms is None else learning_ms

    def confirm(self, sent_ms: int) -> int:
        """Register that Kafka has confirmed this holder, in response to a request that was sent at `sent_ms`.

        Returns: how long a holder that begins with this confirmation has to learn, in ms.
        """
        if self._mine:
            self._confirmed_ms = max(self._confirmed_ms or sent_ms, sent_ms)
            self._first = False
        learning_ms = self._lasting_ms if self._learning_ms is None else self._learning_ms
        self._learning_ms = self._lasting_ms  # if it ends and begins again, it learns of its own leases
        return learning_ms


def _write(name: str, address: Address | None, term: int) -> bytes:
    host, port = ("", 0) if address is None else address
    return (
        bytes((_VERSION,))
        + text(name, NAME_BYTES_MAX, 1)
        + text(host, _HOST_BYTES_MAX, 1)
        + port.to_bytes(_PORT_BYTES)
        + _TERM.pack(term)
    )


def _read(data: bytes) -> tuple[str, Address | None, int] | None:
    """Decode the fields of a claim or a ruling; None if they are not of this version."""
    content = Content(data, 0)
    try:
        if content.number(1) != _VERSION:
            return None
        name, host = content.text(1, NAME_BYTES_MAX), content.text(1, _HOST_BYTES_MAX)
        port = content.number(_PORT_BYTES)
        (term,) = content.unpack(_TERM)
        content.end()
    except MessageError:
        return None
    return name, Address(host, port) if host and port else None, term
