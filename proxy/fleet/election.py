"""The choice of a fleet's holder by a Kafka group: the claims of members, the choice, the tenure; pure.

Each member joins with a *claim*: its name, its address, the term in which it is the holder, if it is, and the last term
that it knows of. The group's leader chooses the holder (`choose`) and tells each member by a *ruling*. The holder of
the latest term stays the holder as long as it is a member.

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

Where brokers have no authorizer every client may join the group, and read what members have said (DescribeGroups,
OffsetFetch), act under another's member id (Kafka binds it to no connection), be the group's leader, and commit. So it
counts who has made a statement, and for what: each is signed with the fleet's secret, with a key for its kind, over the
group's name and all that it says (`Statements`).

- A claim is signed for the member id of its sender. Kafka gives it out at the first joining, after the claim was made;
  a first claim is signed for no member id, and cannot be chosen (`Claim.bound`). It is bound from the next rebalance
  on, which a member asks for itself where no other can be chosen. A claim that is sent again by another client is
  for another member id, and is ignored. Sent again under its own member id it says what that member has said before:
  an older term loses against the present one.
- A ruling is signed for the member id and the nonce of the claim that it responds to, and says whether that member was
  chosen. So it is valid once, for one member, and Kafka's assignment of the partition decides nothing.
- A commit has its term. The next holder believes it if it is of the last term that any member knows of (`Standing`);
  an older commit that is sent again is of another term, and an earlier one of the same term states a longer time.

Statements that are not signed so are ignored and counted; while the holder lives, an unsigned ruling changes nothing
(`proxy.fleet.elected`). A client that may join can still disturb: make the group rebalance, expel members under their
ids, lead it and choose no holder, or overwrite the commit. Then there is no new holder, or it learns for as long as
leases may last; members go on with their leases, and are cut off after them. Against that brokers need an authorizer.
After all members were restarted none knows of a term, and any signed commit is believed: an old one that is sent again
then harms only if a process of the fleet still runs that is not in the group.

The keys of a large fleet are divided into parts (`quotas.sharing.parts`), and each part has a holder of its own: all of
the above is then said of each part by itself, in one claim and one ruling, and committed for a partition of its own.
`choose_all` chooses the holders of all parts. A holder of too many gives some up, as when members were added; only the
keys of these parts then have another lessor. The group's protocol names the number of parts: Kafka refuses members
with another one.

Without a secret nothing is signed, any process that may join can be the holder, and commits are not believed.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, TypeVar

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, encode
from msgspec.structs import replace

from proxy.config import Address
from proxy.fleet.messages import NAME_BYTES_MAX, NONCE_BYTES, Number
from proxy.system.signatures import SIGNATURE_BYTES, Signer

TERM_MAX: Final = 2**32 - 1
_PORT_MAX: Final = 65535
_HOST_BYTES_MAX: Final = 255

_TermNumber = Annotated[int, Meta(ge=0, le=TERM_MAX)]


class Term(NamedTuple):
    """The time during which one process is the holder.

    Args:
        number: counts changes of the holder, 1 to TERM_MAX; 0 for no term.
        run: the random number of the holder's process: `number` begins at 1 again when all members were restarted.
    """

    number: _TermNumber
    run: Number


NO_TERM: Final = Term(0, 0)


class Claim(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="claim"):
    """What a member says of itself when it joins the group.

    Args:
        address: where other members reach it; None if it cannot be the holder.
        run: a random number that identifies its process from its start to its end.
        number: the number of the term in which it is the holder; 0 if it is not the holder.
        known: the last term that it knows of; NO_TERM for none.
        nonce: random bytes of this claim, for which the ruling in response is signed.
        parts: the same as `number` and `known`, of each part of the keys after the first.
        bound: whether the claim is signed for the member id that Kafka has given its sender; only then can the sender
            be chosen. The reader sets it, and it is not sent. True for all claims of a fleet without a secret.
    """

    name: Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
    address: Address | None
    run: Number
    number: _TermNumber
    known: Term
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    bound: bool = True
    parts: tuple[tuple[_TermNumber, Term], ...] = ()

    def of(self, part: int) -> "Claim":
        """Return the claim to one part of the keys."""
        if not part:
            return self
        number, known = self.parts[part - 1] if part <= len(self.parts) else (0, NO_TERM)
        return replace(self, number=number, known=known, parts=())

    @property
    def latest(self) -> Term:
        """The latest term that the member knows of, its own included."""
        return max(self.known, Term(self.number, self.run) if self.number else NO_TERM)


class Ruling(Struct, frozen=True, forbid_unknown_fields=True, tag="ruling"):
    """The choice of the holder, as a member receives it.

    Args:
        name: the holder's; "" if no member can be the holder.
        address: the holder's address; None if no member can be the holder.
        term: the holder's term.
        before: the latest term that any member has known of; NO_TERM for none.
    """

    name: Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
    address: Address | None
    term: Term
    before: Term = NO_TERM


class Lasting(NamedTuple):
    """What a holder commits: the leases of this term last at most `ms` after the commit."""

    ms: int
    term: Term


def choose(claims: Mapping[str, Claim]) -> tuple[str | None, Ruling]:
    """Choose the holder: the present holder with the highest term number; without one, the first member by name.

    Only members whose claim is bound and has an address can be chosen.

    Args:
        claims: by Kafka's member id.

    Returns: the chosen member id, None if no member can be the holder; and the ruling for all members.

    >>> b, c = Claim("b", Address("b", 1), 2, 0, NO_TERM, b""), Claim("c", Address("c", 1), 3, 4, NO_TERM, b"")
    >>> chosen, ruling = choose({"id-b": b, "id-c": c})
    >>> chosen, ruling.name, ruling.term
    ('id-c', 'c', Term(number=4, run=3))
    >>> choose({"id-b": b, "id-a": Claim("a", None, 1, 0, Term(7, 9), b"")})[1].term
    Term(number=8, run=2)
    """
    able = _able(claims)
    member = min(able, key=lambda member: (-able[member].number, able[member].name, member), default=None)
    return member, _ruling(claims, member)


def choose_all(claims: Mapping[str, Claim], parts: int) -> list[tuple[str | None, Ruling]]:
    """Choose the holder of each part of the keys (`choose`): the present one, unless it has more than its number.

    No member holds more parts than all would on average, rounded up. A part without a holder goes to the member that
    comes first for this part by rendezvous hashing, and has room.

    Args:
        parts: the number of parts, above 1.
    """
    able = _able(claims)
    if not able:
        return [
            (None, _ruling({member: claim.of(part) for member, claim in claims.items()}, None))
            for part in range(parts)
        ]
    most = -(-parts // len(able))
    of_part = [{member: claim.of(part) for member, claim in claims.items()} for part in range(parts)]
    holders: dict[int, str] = {}
    counts = dict.fromkeys(able, 0)
    present = []
    for part, those in enumerate(of_part):
        holding = [member for member in able if those[member].number]
        if holding:
            member = min(holding, key=lambda member: (-those[member].number, those[member].name, member))
            present.append((_weight(claims[member].run, part), part, member))
    for _, part, member in sorted(present, reverse=True):
        if counts[member] < most:
            holders[part] = member
            counts[member] += 1
    for part in range(parts):
        if part not in holders:
            free = [member for member in able if counts[member] < most]
            member = max(free, key=lambda member: (_weight(claims[member].run, part), member))
            holders[part] = member
            counts[member] += 1
    return [(holders[part], _ruling(those, holders[part])) for part, those in enumerate(of_part)]


def _weight(run: int, part: int) -> bytes:
    """Return the weight of a member for a part; the largest comes first (rendezvous hashing)."""
    return blake2b(run.to_bytes(8) + part.to_bytes(2), digest_size=8).digest()


def _able(claims: Mapping[str, Claim]) -> dict[str, Claim]:
    return {member: claim for member, claim in claims.items() if claim.bound and claim.address is not None}


def _ruling(claims: Mapping[str, Claim], member: str | None) -> Ruling:
    """Return the ruling that this member is the holder; None: no member can be."""
    latest = max((claim.latest for claim in claims.values()), default=NO_TERM)
    if member is None:
        return Ruling("", None, NO_TERM, latest)
    claim = claims[member]
    term = Term(claim.number, claim.run)
    if not claim.number or term != latest:
        # Another holder than that of the latest term begins a new one. Numbers that are used up begin again at 1: no
        # fleet gets there by itself, but without a secret any process can claim the last one.
        term = Term(latest.number % TERM_MAX + 1, claim.run)
    return Ruling(claim.name, claim.address, term, latest)


class Standing:
    """What one member knows of the holder, and whether it is the holder itself.

    Args:
        tenure_ms: how long this member remains the holder after Kafka has confirmed it, in ms.
        lasting_ms: the longest time in ms that leases may last after a confirmation.

    Attributes:
        ruling: the last ruling; None before the first.
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
        """Whether this member was chosen, and must still read what the holder before it has committed."""
        return self.mine and self._learning_ms is None

    def holds(self, now_ms: int) -> bool:
        """Whether this member is the holder now."""
        if self._confirmed_ms is not None and now_ms >= self._confirmed_ms + self._tenure_ms:
            self._confirmed_ms = None
        return self._confirmed_ms is not None

    def number(self, now_ms: int) -> int:
        """The number of the term in which this member is the holder; 0 if it is not."""
        return self.ruling.term.number if self.ruling is not None and self.holds(now_ms) else 0

    def rule(self, ruling: Ruling, now_ms: int, *, mine: bool) -> None:
        """Apply a ruling of the group's leader: register the holder that it names, and the holder's term.

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
        """Set how long this new holder learns about earlier leases: as long as the earlier holder's commit states.

        If that commit is not believed, or missing, it learns for `lasting_ms`, the longest possible time. It learns for
        no time if there is no commit, and no earlier holder is known. Returns: whether the commit is believed.

        Args:
            lasting: what the commit states; None without a commit, or if it is malformed or not signed.
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
        """Extend the tenure: Kafka has accepted this holder's commit, which was sent at `sent_ms`.

        Returns: how long earlier leases may still last, in ms; it only matters if this member becomes the holder now.
        """
        if self.mine:
            self._confirmed_ms = max(self._confirmed_ms or sent_ms, sent_ms)
            self._first = False
        learning_ms = self._lasting_ms if self._learning_ms is None else self._learning_ms
        self._learning_ms = self._lasting_ms  # if it ends and begins again, it learns of its own leases
        return learning_ms


# The statements of members: claims and rulings in MessagePack, each with its signature behind it, and commits as text:
#
#     leases_ms=20310 term=4 run=00000000000000ff holder=gw-1 signed=<64 hexadecimal digits>

_LASTING_MS_MAX: Final = 120_000  # longer than any version's leases last
_LASTING: Final = re.compile(
    r"(leases_ms=([0-9]{1,6}) (?:roster=[0-9a-f:,]* )?term=([0-9]{1,10}) run=([0-9a-f]{16}) holder=.*?)"
    r"(?: signed=([0-9a-f]{64}))?",
    re.DOTALL,
)
_UNBOUND: Final = b""
_CLAIM: Final = Decoder(Claim)
_RULING: Final = Decoder(tuple[Ruling, bool])


class _Rulings(Struct, frozen=True, forbid_unknown_fields=True, tag="rulings"):
    """The rulings of all parts, which name each holder once: Kafka stores them for each member, in one record.

    Args:
        holders: their names and addresses.
        parts: of each part, the index of the holder, or -1 for none; the term; the one before; and whether the holder
            is the addressee.
    """

    holders: tuple[tuple[Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)], Address], ...]
    parts: tuple[tuple[int, Term, Term, bool], ...]


_RULINGS: Final = Decoder(_Rulings)
Said = tuple[Ruling, bool]
"""A ruling, and whether it makes its addressee the holder."""
T = TypeVar("T")


class Statements:
    """Encodes, signs, verifies and decodes the statements of one group: claims, rulings, and holders' commits.

    Args:
        secret: the fleet's secret; empty without one, and then nothing is signed.
    """

    def __init__(self, secret: bytes, group: str) -> None:
        self._group = group.encode()
        self._signers = (
            {use: Signer(secret, f"fleet {use}") for use in ("claim", "ruling", "commit")} if secret else {}
        )

    @property
    def signed(self) -> bool:
        """Whether statements are signed; False without a secret: claims and rulings are then accepted unsigned."""
        return bool(self._signers)

    def write_claim(self, claim: Claim, member: str) -> bytes:
        """Encode and sign a claim.

        Args:
            member: the member id of its sender; "" before Kafka has given one.
        """
        data = encode(claim)
        return data + self._sign("claim", member.encode(), data)

    def read_claim(self, data: bytes, member: str) -> Claim | None:
        """Decode the claim of a member, and set its `bound`; None if it is malformed or not signed.

        Args:
            member: Kafka's member id of the sender; a claim that is signed for another one counts as not signed.
        """
        bound = self._is_signed("claim", data, member.encode())
        if not bound and not self._is_signed("claim", data, _UNBOUND):
            return None
        claim = self._decoded(_CLAIM, data)
        return replace(claim, bound=bound) if claim is not None and _fits(claim.address) else None

    def write_ruling(self, said: Sequence[Said], member: str, nonce: bytes) -> bytes:
        """Encode and sign the ruling of each part of the keys for one member, the addressee.

        Args:
            said: of each part, the ruling, and whether it makes the addressee the holder.
            member: the addressee's member id.
            nonce: the nonce of the addressee's claim.
        """
        data = encode(said[0] if len(said) == 1 else _joined(said))
        return data + self._sign("ruling", member.encode(), nonce, data)

    def read_ruling(self, data: bytes, member: str, nonce: bytes, parts: int = 1) -> Sequence[Said] | None:
        """Decode the ruling of each part of the keys that this member has received.

        Args:
            parts: the number of parts.
            member: this member's id.
            nonce: the nonce of this member's claim.

        Returns: of each part, the ruling, and whether it makes this member the holder; None if it is malformed, or not
            signed for this member id and nonce.
        """
        if not self._is_signed("ruling", data, member.encode(), nonce):
            return None
        said: Sequence[Said] | None
        if parts == 1:
            one = self._decoded(_RULING, data)
            said = None if one is None else [one]
        else:
            joined = self._decoded(_RULINGS, data)
            said = None if joined is None else _divided(joined)
        if said is None or len(said) != parts:
            return None
        for ruling, mine in said:
            if not _fits(ruling.address) or (ruling.address is None) != (not ruling.name):
                return None
            if mine and not ruling.name:
                return None
        return said

    def write_lasting(self, lasting: Lasting, name: str, roster: str = "", part: int = 0) -> str:
        """Encode the metadata of a holder's commit: how long leases may last after it, and whose leases.

        Args:
            name: the holder's.
            part: the part of the keys that it holds.
            roster: the lessees, as `write_roster` encodes them; "" if they are not stated.

        >>> Statements(b"", "g").write_lasting(Lasting(20_310, Term(4, 255)), "gw-1")
        'leases_ms=20310 term=4 run=00000000000000ff holder=gw-1'
        """
        words = f"leases_ms={lasting.ms} {roster} " if roster else f"leases_ms={lasting.ms} "
        said = f"{words}term={lasting.term.number} run={lasting.term.run:016x} holder={name}"
        signature = self._sign("commit", *_of_part(part), said.encode())
        return f"{said} signed={signature.hex()}" if signature else said

    def read_lasting(self, committed: str, part: int = 0) -> Lasting | None:
        """Decode the metadata of a holder's commit; None if it is malformed, not signed, or there is no secret.

        Args:
            part: the part of the keys for which it was committed.
        """
        found = _LASTING.fullmatch(committed)
        if found is None or found[5] is None or not self._signers:
            return None
        if not self._signers["commit"].verifies(
            bytes.fromhex(found[5]), self._group, *_of_part(part), found[1].encode()
        ):
            return None
        lasting = Lasting(int(found[2]), Term(int(found[3]), int(found[4], 16)))
        return lasting if lasting.ms <= _LASTING_MS_MAX and lasting.term.number <= TERM_MAX else None

    def _sign(self, use: str, *parts: bytes) -> bytes:
        return self._signers[use].sign(self._group, *parts) if self._signers else b""

    def _is_signed(self, use: str, data: bytes, *parts: bytes) -> bool:
        if not self._signers:
            return True
        signature = data[-SIGNATURE_BYTES:]
        return self._signers[use].verifies(signature, self._group, *parts, data[:-SIGNATURE_BYTES])

    def _decoded(self, decoder: Decoder[T], data: bytes) -> T | None:
        """Decode a statement whose signature was verified; None if it is none."""
        try:
            return decoder.decode(data[:-SIGNATURE_BYTES] if self._signers else data)
        except (ValueError, RecursionError):
            return None


def _joined(said: Sequence[Said]) -> _Rulings:
    holders: dict[tuple[str, Address], int] = {}
    parts = []
    for ruling, mine in said:
        holder = -1
        if ruling.address is not None:
            holder = holders.setdefault((ruling.name, ruling.address), len(holders))
        parts.append((holder, ruling.term, ruling.before, mine))
    return _Rulings(tuple(holders), tuple(parts))


def _divided(joined: _Rulings) -> list[Said] | None:
    """Return the ruling of each part; None if one names no holder that there is."""
    said: list[Said] = []
    for holder, term, before, mine in joined.parts:
        if not -1 <= holder < len(joined.holders):
            return None
        name, address = joined.holders[holder] if holder >= 0 else ("", None)
        said.append((Ruling(name, address, term, before), mine))
    return said


def _of_part(part: int) -> tuple[bytes, ...]:
    """Return what a commit is signed over, so that it counts for this part only."""
    return (part.to_bytes(2),) if part else ()


def _fits(address: Address | None) -> bool:
    return address is None or (
        0 < len(address.host.encode()) <= _HOST_BYTES_MAX and 0 < address.port <= _PORT_MAX
    )


# The roster in a holder's commit: to whom it leases, so that its successor knows for whom to wait.
#
#     roster=OWN:RUN,RUN,…    OWN: the run of the process that has committed; RUN: of each lessee; hexadecimal
#
# A commit without a roster says that the holder does not know all lessees; then its successor learns for the whole time
# (`quotas.sharing.lessor`). So does one with more than LESSEES_MAX: brokers accept 4096 bytes of metadata by default.

LESSEES_MAX: Final = 200
# After the first word of `write_lasting`; what follows is free text.
_RUN: Final = "[0-9a-f]{1,16}"
_ROSTER: Final = re.compile(
    rf"leases_ms=[0-9]+ roster=({_RUN}):((?:{_RUN}(?:,{_RUN}){{0,{LESSEES_MAX - 1}}})?) .*", re.DOTALL
)


class Past(NamedTuple):
    """What the last holder has committed about its lessees, the processes to which it leases shares.

    Args:
        author: the run of that holder's process (the random number that identifies it); 0 if it is not known.
        lessees: the runs of all processes whose leases may still last; None if they are not known.
    """

    author: int
    lessees: frozenset[int] | None


class Roster(NamedTuple):
    """The list of lessees that a holder commits, so that its successor knows for whom to wait.

    Args:
        begun: an object that identifies the lessor (which divides the quotas) within this process: all rosters of one
            lessor have the same object. It is what the holder before this one had committed; or a new `Past` with
            this process's run, if this member was that holder itself, and its lessor was then removed. Compare it with
            `is`: the objects of two lessors may be equal.
        number: counts the changes (`Lessor.roster`).
        lessees: the runs of all processes whose leases may still last; None if they are not known.
    """

    begun: Past
    number: int
    lessees: frozenset[int] | None


def write_roster(author: int, lessees: frozenset[int] | None) -> str:
    """Encode a list of lessees for a commit; "" if the lessees are not known, or more than LESSEES_MAX.

    Args:
        author: the run of the holder that commits it.
        lessees: the runs of the processes whose leases may still last.

    >>> write_roster(26, frozenset((26, 7))), write_roster(26, frozenset()), write_roster(26, None)
    ('roster=1a:7,1a', 'roster=1a:', '')
    """
    if lessees is None or len(lessees) > LESSEES_MAX:
        return ""
    return f"roster={author:x}:{','.join(f'{run:x}' for run in sorted(lessees))}"


def read_roster(committed: str | None) -> Past:
    """Decode the list of lessees in the metadata of a commit; `Past(0, None)` if it has none.

    >>> read_roster("leases_ms=20310 roster=1a:7,1a holder=gw-1") == Past(26, frozenset((7, 26)))
    True
    >>> read_roster("leases_ms=20310 holder=gw-1 roster=1a: ")
    Past(author=0, lessees=None)
    """
    found = None if committed is None else _ROSTER.fullmatch(committed)
    if found is None:
        return Past(0, None)
    return Past(int(found[1], 16), frozenset(int(run, 16) for run in found[2].split(",") if run))
