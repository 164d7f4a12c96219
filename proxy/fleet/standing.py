"""The choice of a fleet's holder by a Kafka group: the claims of members, the choice, the tenure; pure.

Each member joins with a *claim*: its name, its address, the term in which it is the holder, if it is, and the last term
that it knows of. The group's leader chooses the holder (`choose`) and tells each member by a *ruling*. The holder of
the latest term stays the holder as long as it is a member. `proxy.fleet.statements` signs what they say, and has the
argument of what a client can do that may join the group too.

A chosen member is the holder for a *tenure* after its last confirmation by Kafka, and not longer (`Standing`), since a
group does not notify a member that it has expelled. Two holders at once are safe if each ends its tenure in time
(`quotas.sharing.lessor`).

A holder's commit states how long leases may last after it (`Lasting`); the group stores only the latest commit. A
holder grants no lease before its first commit, and Kafka refuses commits of earlier generations. So a new holder that
reads the latest commit after it was chosen knows how long it has to learn: not at all if there is no commit, or if the
last holder has ended after all its members. The commit also states to whom leases were granted (`roster`): the
successor has learned as soon as all of them have reported to it. A commit is believed if it is signed, and of the term
that came before, or its own; all else, and a commit that is missing though members know of a holder, means the longest
time that leases may last, and unknown lessees.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.config import Address

TERM_MAX: Final = 2**32 - 1


class Term(NamedTuple):
    """The time during which one process is the holder.

    Args:
        number: counts changes of the holder, 1 to TERM_MAX; 0 for no term.
        run: identifies the life of the holder's process, since numbers begin anew with a new fleet.
    """

    number: int
    run: int


NO_TERM: Final = Term(0, 0)


class Claim(NamedTuple):
    """The message of a member that joins.

    Args:
        address: where other members reach it; None if it cannot be the holder.
        run: identifies the life of its process.
        number: of the term in which it is the holder; 0 if it is not.
        known: the last term that it knows of; NO_TERM for none.
        nonce: identifies this joining: the ruling is for it alone.
        bound: whether the claim is signed for the member id with which Kafka knows its sender. Only then can the
            sender be chosen; true of all claims without a secret.
    """

    name: str
    address: Address | None
    run: int
    number: int
    known: Term
    nonce: bytes
    bound: bool = True

    @property
    def latest(self) -> Term:
        """The latest term that the member knows of, its own included."""
        return max(self.known, Term(self.number, self.run) if self.number else NO_TERM)


class Ruling(NamedTuple):
    """The choice, as a member receives it.

    Args:
        name: the holder's; "" if no member can be the holder.
        address: the holder's address; None if no member can be the holder.
        term: the holder's.
        before: the latest term that any member has known of; NO_TERM for none.
    """

    name: str
    address: Address | None
    term: Term
    before: Term = NO_TERM


class Lasting(NamedTuple):
    """What a holder commits: the leases of this term last at most `ms` after the commit."""

    ms: int
    term: Term


def choose(claims: Mapping[str, Claim]) -> tuple[str | None, Ruling]:
    """Choose the holder: the one of the latest term, or the first by name.

    Args:
        claims: by member id.

    Returns: its member id, None if no member can be the holder; and the ruling for all members.

    >>> b, c = Claim("b", Address("b", 1), 2, 0, NO_TERM, b""), Claim("c", Address("c", 1), 3, 4, NO_TERM, b"")
    >>> chosen, ruling = choose({"id-b": b, "id-c": c})
    >>> chosen, ruling.name, ruling.term
    ('id-c', 'c', Term(number=4, run=3))
    >>> choose({"id-b": b, "id-a": Claim("a", None, 1, 0, Term(7, 9), b"")})[1].term
    Term(number=8, run=2)
    """
    latest = max((claim.latest for claim in claims.values()), default=NO_TERM)
    able = {member: claim for member, claim in claims.items() if claim.bound and claim.address is not None}
    if not able:
        return None, Ruling("", None, NO_TERM, latest)
    member = min(able, key=lambda member: (-able[member].number, able[member].name, member))
    claim = able[member]
    term = Term(claim.number, claim.run)
    if not claim.number or term != latest:
        # Another holder than that of the latest term begins a new one. Numbers that are used up begin again at 1: no
        # fleet gets there by itself, but without a secret any process can claim the last one.
        term = Term(latest.number % TERM_MAX + 1, claim.run)
    return member, Ruling(claim.name, claim.address, term, latest)


class Standing:
    """One member's knowledge of the holder.

    Args:
        tenure_ms: how long this member is the holder without a further confirmation.
        lasting_ms: how long leases may last after a confirmation.

    Attributes:
        ruling: the last one; None before the first.
        known: the last term that this member knows of; NO_TERM for none.
        mine: whether the last ruling has chosen this member.
    """

    def __init__(self, tenure_ms: int, lasting_ms: int) -> None:
        self._tenure_ms = tenure_ms
        self._lasting_ms = lasting_ms
        self._learning_ms: int | None = None
        self._confirmed_ms: int | None = None
        self._first = True  # no ruling has named another holder, and this member never was one
        self._before = NO_TERM  # of the first ruling of this term: later ones name the term itself
        self.ruling: Ruling | None = None
        self.known = NO_TERM
        self.mine = False

    @property
    def asks(self) -> bool:
        """Whether this member was chosen, and has to read what its predecessor has committed."""
        return self.mine and self._learning_ms is None

    @property
    def holder(self) -> Address | None:
        """The address of the holder, as far as this member knows."""
        return None if self.ruling is None else self.ruling.address

    def holds(self, now_ms: int) -> bool:
        """Whether this member is the holder now."""
        if self._confirmed_ms is not None and now_ms >= self._confirmed_ms + self._tenure_ms:
            self._confirmed_ms = None
        return self._confirmed_ms is not None

    def number(self, now_ms: int) -> int:
        """The number of the term in which this member is the holder; 0 if it is not."""
        return self.ruling.term.number if self.ruling is not None and self.holds(now_ms) else 0

    def rule(self, ruling: Ruling, now_ms: int, *, mine: bool) -> None:
        """Take a ruling.

        Args:
            mine: whether it makes this member the holder.
        """
        held = self.holds(now_ms) and self.ruling is not None and self.ruling.term == ruling.term
        if not mine or self.ruling is None or self.ruling.term != ruling.term:
            self._before = ruling.before
        self._first = self._first and (mine or not ruling.name)
        self.ruling, self.mine, self._learning_ms = ruling, mine, None
        if ruling.name:
            self.known = ruling.term
        if not mine:
            self._confirmed_ms = None
        elif not held:
            self._confirmed_ms = now_ms

    def succeed(self, lasting: Lasting | None, *, committed: bool) -> bool:
        """Take the predecessor's commit; returns whether it is one, and to be believed.

        If there is none although a member has known a holder, the commit was deleted together with its topic.

        Args:
            lasting: what it states; None if it is not to be believed.
            committed: whether the group has a commit.
        """
        unknown = self._first and self._before == NO_TERM
        own = None if self.ruling is None else self.ruling.term
        if lasting is not None and (unknown or lasting.term in (self._before, own)):
            self._learning_ms = lasting.ms
            return True
        self._learning_ms = 0 if unknown and not committed else self._lasting_ms
        return False

    def confirm(self, sent_ms: int) -> int:
        """Register that Kafka has confirmed this holder, in response to a request that was sent at `sent_ms`.

        Returns: how long a holder that begins with this confirmation has to learn, in ms.
        """
        if self.mine:
            self._confirmed_ms = max(self._confirmed_ms or sent_ms, sent_ms)
            self._first = False
        learning_ms = self._lasting_ms if self._learning_ms is None else self._learning_ms
        self._learning_ms = self._lasting_ms  # if it ends and begins again, it learns of its own leases
        return learning_ms
