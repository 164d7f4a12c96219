"""What members of the group that chooses a fleet's holder say, as bytes: claims, rulings, commits; signed; pure.

    claim    version u8 = 2, name text u8, host text u8, port u16, run u64, number u32,
             known: number u32, run u64; nonce 16 bytes, signature 32 bytes
    ruling   version u8 = 2, name text u8, host text u8, port u16, term: number u32, run u64,
             before: number u32, run u64; mine u8, signature 32 bytes
    commit   leases_ms=20310 term=4 run=00000000000000ff holder=gw-1 signed=<64 hexadecimal digits>

Where brokers have no authorizer every client may join the group, and read what members have said (DescribeGroups,
OffsetFetch), act under another's member id (Kafka binds it to no connection), be the group's leader, and commit. So it
counts who has made a statement, and for what: each is signed with the fleet's secret, with a key for its kind, over the
group's name and all that it says.

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
(`proxy.fleet.group`). A client that may join can still disturb: make the group rebalance, expel members under their
ids, be its leader and choose no one, or overwrite the commit. Then there is no new holder, or it learns for as long as
leases may last; members go on with their leases, and are cut off after them. Against that brokers need an authorizer.
After all members were restarted none knows of a term, and any signed commit is believed: an old one that is sent again
then harms only if a process of the fleet still runs that is not in the group.

Without a secret nothing is signed, any process that may join can be the holder, and commits are not believed.
"""

import re
import struct
from typing import Final

from proxy.config import Address
from proxy.fleet.codec import NAME_BYTES_MAX, Content, MessageError, text
from proxy.fleet.standing import TERM_MAX, Claim, Lasting, Ruling, Term
from proxy.signatures import SIGNATURE_BYTES, Signer

NONCE_BYTES: Final = 16
_VERSION: Final = 2
_HOST_BYTES_MAX: Final = 255
_PORT_BYTES: Final = 2
_NUMBER_BYTES: Final = 4
_RUN_BYTES: Final = 8
_TERM: Final = struct.Struct(">IQ")
_LASTING_MS_MAX: Final = 120_000  # longer than any version's leases last
_LASTING: Final = re.compile(
    r"(leases_ms=([0-9]{1,6}) (?:roster=[0-9a-f:,]* )?term=([0-9]{1,10}) run=([0-9a-f]{16}) holder=.*?)"
    r"(?: signed=([0-9a-f]{64}))?",
    re.DOTALL,
)
_UNBOUND: Final = b""


class Statements:
    """Writes and reads the statements of one group.

    Args:
        secret: of the fleet; empty without one.
    """

    def __init__(self, secret: bytes, group: str) -> None:
        self._group = group.encode()
        self._signers = (
            {use: Signer(secret, f"fleet {use}") for use in ("claim", "ruling", "commit")} if secret else {}
        )

    @property
    def signed(self) -> bool:
        """Whether statements are signed."""
        return bool(self._signers)

    def write_claim(self, claim: Claim, member: str) -> bytes:
        """Encode a claim.

        Args:
            member: the member id of its sender; "" before Kafka has given one.
        """
        data = (
            bytes((_VERSION,))
            + text(claim.name, NAME_BYTES_MAX, 1)
            + _write_address(claim.address)
            + claim.run.to_bytes(_RUN_BYTES)
            + claim.number.to_bytes(_NUMBER_BYTES)
            + _TERM.pack(*claim.known)
            + claim.nonce
        )
        return data + self._sign("claim", member.encode(), data)

    def read_claim(self, data: bytes, member: str) -> Claim | None:
        """Decode the claim of a member; None if it is not one of this version, or not signed for this member."""
        content = self._content(data)
        if content is None:
            return None
        try:
            name, address = content.text(1, NAME_BYTES_MAX), _read_address(content)
            run, number = content.number(_RUN_BYTES), content.number(_NUMBER_BYTES)
            known = Term(*content.unpack(_TERM))
            nonce = content.bytes(NONCE_BYTES)
            content.end()
        except MessageError:
            return None
        bound = self._is_signed("claim", data, member.encode())
        if not bound and not self._is_signed("claim", data, _UNBOUND):
            return None
        return Claim(name, address, run, number, known, nonce, bound)

    def write_ruling(self, ruling: Ruling, member: str, nonce: bytes, *, mine: bool) -> bytes:
        """Encode a ruling for one member.

        Args:
            nonce: of the member's claim.
            mine: whether it makes this member the holder.
        """
        data = (
            bytes((_VERSION,))
            + text(ruling.name, NAME_BYTES_MAX, 1)
            + _write_address(ruling.address)
            + _TERM.pack(*ruling.term)
            + _TERM.pack(*ruling.before)
            + bytes((mine,))
        )
        return data + self._sign("ruling", member.encode(), nonce, data)

    def read_ruling(self, data: bytes, member: str, nonce: bytes) -> tuple[Ruling, bool] | None:
        """Decode the ruling for a member, and whether it makes this member the holder.

        Returns: None if it is not one of this version, or not signed for this member and claim.
        """
        content = self._content(data)
        if content is None:
            return None
        try:
            name, address = content.text(1, NAME_BYTES_MAX), _read_address(content)
            term, before = Term(*content.unpack(_TERM)), Term(*content.unpack(_TERM))
            mine = bool(content.number(1))
            content.end()
        except MessageError:
            return None
        if not self._is_signed("ruling", data, member.encode(), nonce):
            return None
        if (address is None) != (not name) or (mine and not name):
            return None
        return Ruling(name, address, term, before), mine

    def write_lasting(self, lasting: Lasting, name: str, roster: str = "") -> str:
        """Encode the metadata of a holder's commit: how long leases may last after it, and whose (`roster`).

        >>> Statements(b"", "g").write_lasting(Lasting(20_310, Term(4, 255)), "gw-1")
        'leases_ms=20310 term=4 run=00000000000000ff holder=gw-1'
        """
        words = f"leases_ms={lasting.ms} {roster} " if roster else f"leases_ms={lasting.ms} "
        said = f"{words}term={lasting.term.number} run={lasting.term.run:016x} holder={name}"
        signature = self._sign("commit", said.encode())
        return f"{said} signed={signature.hex()}" if signature else said

    def read_lasting(self, committed: str) -> Lasting | None:
        """Decode the metadata of a holder's commit; None if it is not signed, or has no such time."""
        found = _LASTING.fullmatch(committed)
        if found is None or found[5] is None or not self._signers:
            return None
        if not self._signers["commit"].verifies(bytes.fromhex(found[5]), self._group, found[1].encode()):
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

    def _content(self, data: bytes) -> Content | None:
        """Return the content of a claim or a ruling without its signature; None if it is of another version."""
        end = len(data) - SIGNATURE_BYTES if self._signers else len(data)
        if end < 1 or data[0] != _VERSION:
            return None
        return Content(data[:end], 1)


def _write_address(address: Address | None) -> bytes:
    host, port = ("", 0) if address is None else address
    return text(host, _HOST_BYTES_MAX, 1) + port.to_bytes(_PORT_BYTES)


def _read_address(content: Content) -> Address | None:
    host, port = content.text(1, _HOST_BYTES_MAX), content.number(_PORT_BYTES)
    return Address(host, port) if host and port else None
