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
    7 view      see `proxy.fleet.view`
    8 leave     no content: the member has ended, and uses no share any more
    9 question  number u32, content: a request of a member (`proxy.fleet.calls`)
    10 answer   number u32, content: the response to the question of this number

Version 1 had a signed hello, and no proof (`proxy.fleet.frames`). The head and the hello are to stay the same in all
versions, so that a process of another version is refused with an explanation. The sender and the order of messages are
not checked here.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

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
