"""Messages between the holder of a fleet and its members <-> bytes; pure.

All numbers are big-endian. A message has a head and the content of its kind; a text is a length and UTF-8:

    magic "SLFT"  version u8 = 2  kind u8
    1 hello     nonce 16 bytes
    2 report    name text u8, run u64, session u64, number u64, applied u64, lessees_max u16,
                wishes u16, then of each: key text u16, wanted f64, weight f64; wanted -1: the wish has ended
                held u16, then of each: key text u16, share f64
    3 grants    run u64, session u64, version u64, number u64, lease_ms u32, lessees_max u16, complete u8,
                shares u16, then of each: key text u16, share f64; -1: no share of its own any more
    4 refusal   cause text u8, problem text u16
    5 lost      problem text u16: the session is not open at the holder
    6 facts     u8, then of each: name text u8, value text u8
    7 view      see `proxy.fleet.facts`
    8 leave     no content: the member has ended, and uses no share any more
    9 question  number u32, content: a request of a member (`proxy.fleet.calls`)
    10 answer   number u32, content: the response to the question of this number

Version 1 had a signed hello, and no proof (`proxy.fleet.messages`). The head and the hello are to stay the same in all
versions, so that a process of another version is refused with an explanation. The sender and the order of messages are
not checked here.
"""

import asyncio
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from quotas.sharing.lease_values import DEFAULT_KEY, KEYS_MAX, Grants, LesseeId, Report, Wish

VERSION: Final = 2
NAME_BYTES_MAX: Final = 64
KEY_BYTES_MAX: Final = 2048
LESSEES_MAX: Final = 256
NONCE_BYTES: Final = 16
FACTS_MAX: Final = 16
FACT_BYTES_MAX: Final = 255
CAUSE_BYTES_MAX: Final = 32
PROBLEM_BYTES_MAX: Final = 500
WEIGHT_MAX: Final = 1e9
_LEASE_MS_MAX: Final = 3_600_000
_MAGIC: Final = b"SLFT"
_HEAD: Final = struct.Struct(">4sBB")
_REPORT: Final = struct.Struct(">QQQQH")
_GRANTS: Final = struct.Struct(">QQQQIHB")
_PAIR: Final = struct.Struct(">dd")
_F64: Final = struct.Struct(">d")
_NONE: Final = -1.0
_NUMBER_BYTES: Final = 4
HELLO_BYTES: Final = _HEAD.size + NONCE_BYTES
_ENTRY_BYTES_MAX: Final = 2 + KEY_BYTES_MAX + _PAIR.size
MESSAGE_BYTES_MAX: Final = 1024 + 2 * (KEYS_MAX + 1) * _ENTRY_BYTES_MAX
_HELLO, _REPORT_KIND, _GRANTS_KIND, _REFUSAL, _LOST, _FACTS, VIEW_KIND, _LEAVE, _QUESTION, _ANSWER = range(
    1, 11
)

Facts = Mapping[str, str]


class MessageError(Exception):
    """Malformed bytes, with the offset of the error."""


class VersionError(MessageError):
    """A message of another version of the protocol."""


class Hello(NamedTuple):
    """The first two messages of each side; the signatures of all but the first depend on both nonces."""

    nonce: bytes


class Refusal(NamedTuple):
    """The holder refuses a member.

    Args:
        cause: one word.
        problem: a sentence for the member's operator.
    """

    cause: str
    problem: str


class Lost(NamedTuple):
    """The session is not open at the holder; the member opens another."""

    problem: str


class Leave(NamedTuple):
    """The member has ended: its shares are free."""


class Question(NamedTuple):
    """A member's request to the holder that is not about shares."""

    number: int
    content: bytes


class Answer(NamedTuple):
    """The holder's response to the question of this number."""

    number: int
    content: bytes


Message = Hello | Report | Grants | Refusal | Lost | Leave | Facts | Question | Answer


def write(message: Message) -> bytes:
    """Encode a message."""
    if isinstance(message, Report):
        return _write_report(message)
    if isinstance(message, Grants):
        return _write_grants(message)
    if isinstance(message, Hello):
        return head(_HELLO) + message.nonce
    if isinstance(message, Refusal):
        cause = text(message.cause, CAUSE_BYTES_MAX, 1)
        return head(_REFUSAL) + cause + text(message.problem, PROBLEM_BYTES_MAX, 2)
    if isinstance(message, Lost):
        return head(_LOST) + text(message.problem, PROBLEM_BYTES_MAX, 2)
    if isinstance(message, Leave):
        return head(_LEAVE)
    if isinstance(message, Question | Answer):
        numbered = head(_QUESTION if isinstance(message, Question) else _ANSWER)
        return numbered + message.number.to_bytes(_NUMBER_BYTES) + message.content
    return head(_FACTS) + write_facts(message)


def read(message: bytes) -> Message:
    """Decode a message of any kind but a view.

    >>> read(write(Lost("another holder")))
    Lost(problem='another holder')

    Raises:
        MessageError: it is malformed.
        VersionError: it is of another version.
    """
    kind = kind_of(message)
    reader = _READERS.get(kind)
    if reader is None:
        raise MessageError(f"byte 5: a message of kind {kind}")
    content = Content(message)
    found = reader(content)
    content.end()
    return found


def kind_of(message: bytes) -> int:
    """Return the kind of a message.

    Raises:
        MessageError: it is not one of this protocol.
        VersionError: it is of another version.
    """
    if len(message) < _HEAD.size:
        raise MessageError(f"byte 0: {len(message)} bytes are not a message")
    magic, version, kind = _HEAD.unpack_from(message)
    if magic != _MAGIC:
        raise MessageError("byte 0: this is not Sluice's fleet protocol")
    if version != VERSION:
        problem = f"version {version} of the fleet protocol; this process has {VERSION}"
        raise VersionError(f"byte 4: {problem}, and all members need the same")
    return int(kind)


def head(kind: int) -> bytes:
    """Return the head of a message."""
    return _HEAD.pack(_MAGIC, VERSION, kind)


def text(value: str, bytes_max: int, length_bytes: int) -> bytes:
    """Encode a text; a longer one is cut off."""
    encoded = value.encode("utf-8", "replace")[:bytes_max]
    if len(encoded) == bytes_max:  # maybe cut within a character
        encoded = encoded.decode("utf-8", "ignore").encode()
    return len(encoded).to_bytes(length_bytes) + encoded


class Content:
    """Reads the content of a message from its beginning."""

    def __init__(self, message: bytes, at: int = _HEAD.size) -> None:
        self._message = message
        self.at = at

    def bytes(self, length: int) -> bytes:
        """Read bytes."""
        found = self._message[self.at : self.at + length]
        if len(found) < length:
            raise MessageError(f"byte {self.at}: {length} bytes expected, {len(found)} left")
        self.at += length
        return found

    def number(self, length: int) -> int:
        """Read an unsigned number."""
        return int.from_bytes(self.bytes(length))

    def unpack(self, what: struct.Struct) -> tuple[int, ...]:
        """Read fields."""
        return what.unpack(self.bytes(what.size))

    def text(self, length_bytes: int, bytes_max: int) -> str:
        """Read a text."""
        at = self.at
        length = self.number(length_bytes)
        if length > bytes_max:
            raise MessageError(f"byte {at}: a text of {length} bytes, at most {bytes_max} allowed")
        try:
            return self.bytes(length).decode()
        except UnicodeDecodeError:
            raise MessageError(f"byte {at}: a text that is not UTF-8") from None

    def name(self) -> str:
        """Read the name of a process: printable, since it is shown."""
        at = self.at
        name = self.text(1, NAME_BYTES_MAX)
        if not name or not name.isprintable():
            raise MessageError(f"byte {at}: not a printable name")
        return name

    def count(self, most: int, length_bytes: int = 2) -> int:
        """Read the number of entries that follow."""
        at = self.at
        count = self.number(length_bytes)
        if count > most:
            raise MessageError(f"byte {at}: {count} entries, at most {most} allowed")
        return count

    def share(self) -> float:
        """Read a share, 0 to 1."""
        at = self.at
        (share,) = _F64.unpack(self.bytes(_F64.size))
        if not 0 <= share <= 1:  # in this form also false for NaN
            raise MessageError(f"byte {at}: {share} is not a share")
        return float(share)

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self._message) - self.at

    def end(self) -> None:
        """Check that no bytes follow; raises MessageError if some do."""
        if self.left:
            raise MessageError(f"byte {self.at}: {self.left} bytes too many")


def _write_report(report: Report) -> bytes:
    lessee = report.lessee
    parts = [
        head(_REPORT_KIND),
        text(lessee.name, NAME_BYTES_MAX, 1),
        _REPORT.pack(lessee.run, report.session, report.number, report.applied, report.lessees_max),
        len(report.wishes).to_bytes(2),
    ]
    for key, wish in report.wishes.items():
        wanted, weight = (_NONE, 0.0) if wish is None else wish
        parts += (_key(key), _PAIR.pack(wanted, weight))
    parts.append(len(report.held).to_bytes(2))
    for key, share in report.held.items():
        parts += (_key(key), _F64.pack(share))
    return b"".join(parts)


def _read_report(content: Content) -> Report:
    name = content.name()
    at = content.at
    run, session, number, applied, lessees_max = content.unpack(_REPORT)
    if not number or not 1 <= lessees_max <= LESSEES_MAX:
        raise MessageError(f"byte {at}: report {number} of a fleet of at most {lessees_max} members")
    wishes: dict[str, Wish | None] = {}
    for _ in range(content.count(KEYS_MAX)):
        key = content.text(2, KEY_BYTES_MAX)
        at = content.at
        wanted, weight = _PAIR.unpack(content.bytes(_PAIR.size))
        if wanted == _NONE:
            wishes[key] = None
        elif 0 <= wanted <= 1 and 0 <= weight <= WEIGHT_MAX:
            wishes[key] = Wish(wanted, weight)
        else:
            raise MessageError(f"byte {at}: a share of {wanted} is wanted, with weight {weight}")
    held = {}
    for _ in range(content.count(KEYS_MAX + 1)):
        key = content.text(2, KEY_BYTES_MAX)
        held[key] = content.share()
    return Report(LesseeId(name, run), session, number, applied, wishes, held, lessees_max)


def _write_grants(grants: Grants) -> bytes:
    parts = [
        head(_GRANTS_KIND),
        _GRANTS.pack(
            grants.run,
            grants.session,
            grants.version,
            grants.number,
            grants.lease_ms,
            grants.lessees_max,
            grants.complete,
        ),
        len(grants.shares).to_bytes(2),
    ]
    for key, share in grants.shares.items():
        parts += (_key(key), _F64.pack(_NONE if share is None else share))
    return b"".join(parts)


def _read_grants(content: Content) -> Grants:
    at = content.at
    run, session, version, number, lease_ms, lessees_max, complete = content.unpack(_GRANTS)
    fits = lease_ms <= _LEASE_MS_MAX and 1 <= lessees_max <= LESSEES_MAX and complete <= 1
    if not (fits and session and version):
        problem = f"grants {version} of session {session} for {lease_ms} ms and {lessees_max} members"
        raise MessageError(f"byte {at}: {problem}, complete {complete}")
    shares: dict[str, float | None] = {}
    for _ in range(content.count(KEYS_MAX + 1)):
        key = content.text(2, KEY_BYTES_MAX)
        at = content.at
        (share,) = _F64.unpack(content.bytes(_F64.size))
        if 0 <= share <= 1:
            shares[key] = share
        elif share == _NONE and key != DEFAULT_KEY:
            shares[key] = None
        else:
            raise MessageError(f"byte {at}: {share} is not a share")
    if complete and DEFAULT_KEY not in shares:
        raise MessageError(f"byte {content.at}: complete grants without a default share")
    return Grants(run, session, version, number, lease_ms, shares, bool(complete), lessees_max)


def write_facts(facts: Facts) -> bytes:
    """Encode facts; surplus ones are left out."""
    entries = list(facts.items())[:FACTS_MAX]
    return bytes((len(entries),)) + b"".join(
        text(name, FACT_BYTES_MAX, 1) + text(value, FACT_BYTES_MAX, 1) for name, value in entries
    )


def read_facts(content: Content) -> Facts:
    """Decode facts."""
    return {
        content.text(1, FACT_BYTES_MAX): content.text(1, FACT_BYTES_MAX)
        for _ in range(content.count(FACTS_MAX, 1))
    }


def _key(key: str) -> bytes:
    encoded = key.encode()
    assert len(encoded) <= KEY_BYTES_MAX, "keys that are longer get no shares of their own"
    return len(encoded).to_bytes(2) + encoded


_READERS: Final[Mapping[int, Callable[[Content], Message]]] = {
    _HELLO: lambda content: Hello(content.bytes(NONCE_BYTES)),
    _REPORT_KIND: _read_report,
    _GRANTS_KIND: _read_grants,
    _REFUSAL: lambda content: Refusal(content.text(1, CAUSE_BYTES_MAX), content.text(2, PROBLEM_BYTES_MAX)),
    _LOST: lambda content: Lost(content.text(2, PROBLEM_BYTES_MAX)),
    _FACTS: read_facts,
    _LEAVE: lambda _: Leave(),
    _QUESTION: lambda content: Question(content.number(_NUMBER_BYTES), content.bytes(content.left)),
    _ANSWER: lambda content: Answer(content.number(_NUMBER_BYTES), content.bytes(content.left)),
}


# ----------------------------------------------------------------------------------------------------
# Frames of a connection between members of a fleet: length, signature, message.
#
#     length u32 of what follows
#     HMAC-SHA256; without a secret, with an empty key, as a checksum only
#     the message
#
# A connection begins with two frames of each side:
#
#     hello   both sides at once: a nonce, with a checksum only
#     proof   the member's, then the holder's: the same nonce, signed
#
# The proof and all frames after it are signed with a key that depends on the secret and on both nonces; the
# signature
# covers direction and number too. So a frame cannot be repeated, left out, sent back, or used on another
# connection, and
# a proof cannot have been recorded. Frames are not encrypted; `[fleet.tls]` puts TLS around them.
#
# Signatures are given to peers that have proven the secret, with one exception: one side has to begin, and
# that is the
# member. So a process that connects to the holder's port gets nothing that depends on the secret, however
# often it asks;
# one that stands at the holder's address gets a proof, from which it could find a secret by trial. The
# members'
# statements in the group are such signatures too (`proxy.fleet.election`), readable for every client of
# brokers without
# an authorizer. The secret therefore has at least 32 bytes (`proxy.system.files.read_secret`), and with those
# of `sluice fleet
# secret`, which are 256 random bits, trial is hopeless. Before the proofs each side reads only frames of a
# hello's size,
# and a member sends no facts and no report.


SIGNATURE_BYTES: Final = 32
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake: no frame is that long
_FROM_HOLDER, _FROM_MEMBER = b"H", b"M"


class SignatureError(MessageError):
    """A frame is not signed with this process's secret."""

    def __init__(self) -> None:
        super().__init__("wrong signature: fleet.secret_file must be the same in all members")


class TlsMismatchError(MessageError):
    """One side speaks TLS, and the other does not."""

    def __init__(self) -> None:
        super().__init__("the peer speaks TLS, and this process does not: [fleet.tls] must be in all members")


class Frames:
    """Signs and verifies the frames of one connection; pure, except for the random nonce and `receive`.

    Args:
        secret: of the fleet; empty without one.
        holder: whether this side is the holder.
    """

    def __init__(self, secret: bytes, *, holder: bool) -> None:
        self._secret = secret
        self._holder = holder
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._key = b""
        self._sent = 0
        self._received = 0

    @property
    def greeted(self) -> bool:
        """Whether the hello of the other side has arrived."""
        return bool(self._key)

    @property
    def proven(self) -> bool:
        """Whether the other side has proven that it has the secret."""
        return self._received > 0

    @property
    def bytes_max(self) -> int:
        """The largest length of the next frame; small until the other side has proven that it has the secret."""
        return SIGNATURE_BYTES + (MESSAGE_BYTES_MAX if self.proven else HELLO_BYTES)

    def hello(self) -> bytes:
        """Return the first frame."""
        return _frame(b"", write(Hello(self._nonce)), b"")

    def proof(self) -> bytes:
        """Return the second frame; the holder's comes after the member's."""
        assert not self._sent, "the proof comes first"
        return self._signed(write(Hello(self._nonce)))

    def no_proof(self) -> bytes:
        """Return a second frame without a signature, for a member with another secret, which notices it by that."""
        return _frame(b"", write(Hello(self._nonce)), b"")

    def write(self, message: bytes) -> bytes:
        """Return the frame of a message."""
        assert self._sent, "the proof comes first"
        return self._signed(message)

    def open(self, frame: bytes) -> bytes:
        """Return the message of a frame, without its length, after the hello.

        Raises:
            SignatureError: it is not signed for this connection, direction and number.
        """
        place = (_FROM_MEMBER if self._holder else _FROM_HOLDER) + self._received.to_bytes(8)
        message = frame[SIGNATURE_BYTES:]
        if not hmac.compare_digest(frame[:SIGNATURE_BYTES], _digest(self._key, place + message)):
            raise SignatureError
        self._received += 1
        return message

    def greet(self, frame: bytes) -> None:
        """Take the hello of the other side.

        Raises:
            MessageError: it is not a hello; VersionError: of another version.
        """
        message = frame[SIGNATURE_BYTES:]
        hello = read(message)  # first, so that another version is reported as such
        if not isinstance(hello, Hello) or not hmac.compare_digest(
            frame[:SIGNATURE_BYTES], _digest(b"", message)
        ):
            raise MessageError("byte 5: a hello comes first")
        nonces = (self._nonce, hello.nonce) if self._holder else (hello.nonce, self._nonce)
        self._key = _digest(self._secret, b"sluice fleet" + b"".join(nonces))

    async def receive(self, reader: asyncio.StreamReader) -> bytes:
        """Read the next frame; return its message, b"" for the hello and the proof.

        Raises:
            MessageError: the frame is malformed, or not signed with this secret.
            OSError, asyncio.IncompleteReadError: the connection has ended.
        """
        head = await reader.readexactly(4)
        if not self._key and head.startswith(_TLS_RECORDS):
            raise TlsMismatchError
        length = int.from_bytes(head)
        if not SIGNATURE_BYTES < length <= self.bytes_max:
            raise MessageError(f"a frame of {length} bytes, above the maximum of {self.bytes_max}")
        frame = await reader.readexactly(length)
        if not self._key:
            self.greet(frame)
            return b""
        proven = self.proven
        message = self.open(frame)
        return message if proven else b""

    def _signed(self, message: bytes) -> bytes:
        assert self._key, "the hello comes first"
        assert self.proven or not self._holder, (
            "nothing is signed for a process that has not proven the secret"
        )
        place = (_FROM_HOLDER if self._holder else _FROM_MEMBER) + self._sent.to_bytes(8)
        self._sent += 1
        return _frame(self._key, message, place)


def _frame(key: bytes, message: bytes, place: bytes) -> bytes:
    signature = _digest(key, place + message)
    return (len(signature) + len(message)).to_bytes(4) + signature + message


def _digest(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


# ----------------------------------------------------------------------------------------------------
# Reduces reports to what the fleet's protocol can express, within its bounds; pure.


T = TypeVar("T")


def named(key: str) -> bool:
    r"""Whether a key can have a share of its own.

    >>> named("user\x00client"), named("x" * 3000), named("\ud800")
    (True, False, False)
    """
    if len(key) > KEY_BYTES_MAX:
        return False
    try:
        return len(key.encode()) <= KEY_BYTES_MAX
    except UnicodeEncodeError:
        return False


def sendable(report: Report) -> Report:
    """Return the report without the keys that cannot be sent; these have the default share."""
    return report._replace(wishes=dict(islice(_wishes(report), KEYS_MAX)))


def _wishes(report: Report) -> Iterator[tuple[str, Wish | None]]:
    for key, wish in report.wishes.items():
        if not named(key):
            continue
        if wish is None:
            yield key, None
        elif wish.wanted >= 0 and wish.weight >= 0:  # in this form also false for NaN
            yield key, Wish(min(1.0, wish.wanted), min(WEIGHT_MAX, wish.weight))
