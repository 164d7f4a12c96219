"""The messages between the holder of a fleet and its members, and the frames in which they travel.

A frame is a length u32 of what follows, a signature (HMAC-SHA256), and a message. A connection begins with two frames
of each side, which are the same in all versions, so that a process of another version is refused with an explanation:

    hello   both sides at once: magic "SLFT"  version u8 = 3  kind u8 = 1  nonce 16 bytes; with a checksum only
    proof   the member's, then the holder's: the same bytes, signed

All further messages are the classes of `Message` in MessagePack. Their bytes are bounded and their signatures verified
before they are decoded; the number of entries of each map is looked at before its entries are.

The proof and all frames after it are signed with a key that depends on the secret and on both nonces; the signature
covers direction and number too. So a frame cannot be repeated, left out, sent back, or used on another connection, and
a proof cannot have been recorded. Without a secret the key is that of an empty one, and the signature a checksum.
Frames are not encrypted; `[fleet.tls]` puts TLS around them.

Non-obvious:

- Signatures are given to peers that have proven the secret, with one exception: one side has to begin, and that is the
  member. So a process that connects to the holder's port gets nothing that depends on the secret, however often it
  asks; one that stands at the holder's address gets a proof, from which it could find a secret by trial. The members'
  statements in the group are such signatures too (`proxy.fleet.election`), readable for every client of brokers without
  an authorizer. The secret therefore has at least 32 bytes (`proxy.system.files.read_secret`), and with those of
  `sluice fleet secret`, which are 256 random bits, trial is hopeless. Before the proofs each side reads only frames of
  a hello's size, and a member sends no facts and no report.
- The sender and the order of messages are not checked here.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import astuple

from quotas.sharing.lease_values import (
    DEFAULT_KEY,
    KEYS_MAX,
    WEIGHT_MAX,
    Grants,
    LesseeId,
    Report,
    Share,
    Wish,
)

VERSION: Final = 3
NAME_BYTES_MAX: Final = 64
KEY_BYTES_MAX: Final = 2048
LESSEES_MAX: Final = 256
FACTS_MAX: Final = 17  # the last one only with several parts
FACT_BYTES_MAX: Final = 255
CAUSE_BYTES_MAX: Final = 32
PROBLEM_BYTES_MAX: Final = 500
KEYS_SHOWN_MAX: Final = 64
NONCE_BYTES: Final = 16
SIGNATURE_BYTES: Final = 32
_LEASE_MS_MAX: Final = 3_600_000
_MAGIC: Final = b"SLFT"
_HELLO: Final = _MAGIC + bytes((VERSION, 1))
HELLO_BYTES: Final = len(_HELLO) + NONCE_BYTES
# Each key may be wished for and held: its length, and in the mean 16 bytes of numbers.
_ENTRY_BYTES_MAX: Final = 2 + KEY_BYTES_MAX + 16
MESSAGE_BYTES_MAX: Final = 1024 + 2 * (KEYS_MAX + 1) * _ENTRY_BYTES_MAX
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake: no frame is that long
_FROM_HOLDER, _FROM_MEMBER = b"H", b"M"

Number = Annotated[int, Meta(ge=0)]  # MessagePack has none above 2^64 - 1
Count = Annotated[int, Meta(ge=1)]
_U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_Lessees = Annotated[int, Meta(ge=1, le=LESSEES_MAX)]
_Fact = Annotated[str, Meta(max_length=FACT_BYTES_MAX)]
_Key = Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
_Problem = Annotated[str, Meta(max_length=PROBLEM_BYTES_MAX)]

Facts = Annotated[Mapping[_Fact, _Fact], Meta(max_length=FACTS_MAX)]


class MessageError(Exception):
    """A message is malformed. The text says what is wrong, at which field; `cause` is the label in the metrics."""

    cause = "malformed"


class VersionError(MessageError):
    """The other side's first frame is of another version of the fleet protocol."""

    cause = "version"


# Messages


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag=str.lower):
    """A message of its own type."""


class Refusal(_Message, frozen=True):
    """The holder refuses a member, and closes the connection.

    Args:
        cause: one word, for logs and metrics.
        problem: a sentence for the member's operator.
    """

    cause: Annotated[str, Meta(max_length=CAUSE_BYTES_MAX)]
    problem: _Problem


class Lost(_Message, frozen=True):
    """The holder's response to a report whose session it does not have open: the member then opens a new one."""

    problem: _Problem


class Leave(_Message, frozen=True):
    """A member no longer uses its shares, so they are free immediately; then it closes the connection."""


class Question(_Message, frozen=True):
    """A member's request to the holder that is not about shares (`proxy.fleet.calls`)."""

    number: _U32
    content: bytes


class Response(_Message, frozen=True, tag="answer"):  # the tag of version 3 of the protocol
    """The holder's response to the `Question` with the same number."""

    number: _U32
    content: bytes


class Told(_Message, frozen=True):
    """A member's facts: the settings and addresses that it tells the holder (`proxy.fleet.facts`)."""

    facts: Facts


class MemberView(NamedTuple):
    """A member as the holder sees it.

    Args:
        silent_ms: the time since its last report, in ms.
        present_s: the time since its first report, in seconds.
        facts: the facts that it has sent about itself.
    """

    lessee: LesseeId
    silent_ms: Number
    present_s: Number
    facts: Facts


class View(_Message, frozen=True):
    """The state of the fleet, which the holder sends its members for display; no decision depends on it.

    Args:
        learning: whether the holder has just begun, and raises no share until it knows all earlier leases.
        shares: for each key (text that names one quota and where it applies), the largest share (0 to 1) that each
            member may be using, in the order of `members`.
    """

    learning: bool
    members: Annotated[tuple[MemberView, ...], Meta(max_length=2 * LESSEES_MAX)]
    shares: Annotated[
        tuple[tuple[_Key, Annotated[tuple[Share, ...], Meta(max_length=2 * LESSEES_MAX)]], ...],
        Meta(max_length=KEYS_SHOWN_MAX),
    ]


class _Report(_Message, frozen=True, tag="report"):
    """The fields of `Report`, with their bounds between processes that do not trust each other."""

    lessee: LesseeId
    session: Number
    number: Count
    applied: Number
    wishes: Annotated[Mapping[_Key, Wish | None], Meta(max_length=KEYS_MAX)]
    held: Annotated[Mapping[_Key, Share], Meta(max_length=KEYS_MAX + 1)]
    lessees_max: _Lessees


class _Grants(_Message, frozen=True, tag="grants"):
    """The fields of `Grants`, with their bounds; a share of None is no share of its own any more."""

    run: Number
    session: Count
    version: Count
    number: Number
    lease_ms: Annotated[int, Meta(ge=0, le=_LEASE_MS_MAX)]
    shares: Annotated[Mapping[_Key, Share | None], Meta(max_length=KEYS_MAX + 1)]
    complete: bool
    lessees_max: _Lessees


Message = Report | Grants | Refusal | Lost | Told | View | Leave | Question | Response

_Wire = _Report | _Grants | Refusal | Lost | Told | View | Leave | Question | Response

_ENCODER: Final = Encoder()
_DECODER: Final = Decoder(_Wire)


def write(message: Message) -> bytes:
    """Encode a message in MessagePack, without its frame."""
    if isinstance(message, Report):
        return _ENCODER.encode(_Report(*message))
    # Between members loans are valid for LOAN_MS: `Grants.loans_ms`, the last field, is for workers.
    return _ENCODER.encode(_Grants(*message[:-1]) if isinstance(message, Grants) else message)


def read(message: bytes) -> Message:
    """Decode a message.

    >>> read(write(Lost("another holder")))
    Lost(problem='another holder')

    Raises:
        MessageError: it is malformed.
    """
    try:
        found: _Wire = _DECODER.decode(message)
        if isinstance(found, _Report):
            _check_names([found.lessee])
            _check_texts(found.wishes, KEY_BYTES_MAX)
            _check_texts(found.held, KEY_BYTES_MAX)
            return Report(*astuple(found))
        if isinstance(found, _Grants):
            _check_texts(found.shares, KEY_BYTES_MAX)
            if found.shares.get(DEFAULT_KEY, None if found.complete else 0.0) is None:
                raise ValueError("grants without a default share")
            return Grants(*astuple(found))
        if isinstance(found, Told):
            _check_facts(found.facts)
        elif isinstance(found, View):
            _check_view(found)
    except (ValueError, RecursionError) as error:
        raise MessageError(cut(str(error), PROBLEM_BYTES_MAX)) from None
    return found


def cut(text: str, bytes_max: int) -> str:
    """Return the longest beginning of a text that has at most `bytes_max` bytes in UTF-8.

    >>> cut("caf\u00e9", 4)
    'caf'
    """
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def told(facts: Facts) -> Told:
    """Return the message with these facts: texts are cut to FACT_BYTES_MAX, and facts above FACTS_MAX left out."""
    bounded = [(cut(name, FACT_BYTES_MAX), cut(value, FACT_BYTES_MAX)) for name, value in facts.items()]
    return Told(dict(bounded[:FACTS_MAX]))


def refusal(cause: str, problem: str) -> Refusal:
    """Return the message of a refusal; too long texts are cut."""
    return Refusal(cut(cause, CAUSE_BYTES_MAX), cut(problem, PROBLEM_BYTES_MAX))


def named(key: str) -> bool:
    r"""Whether a key can be sent, so that it can have a share of its own; else the default share applies to it.

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
    """Return the report with its wishes (demands for shares) within their bounds, and without keys that cannot be sent.

    Keys that are left out have the default share.
    """
    wishes: dict[str, Wish | None] = {}
    for key, wish in report.wishes.items():
        if len(wishes) >= KEYS_MAX:
            break
        if not named(key):
            continue
        if wish is None:
            wishes[key] = None
        elif wish.wanted >= 0 and wish.weight >= 0:  # in this form also false for NaN
            wishes[key] = Wish(min(1.0, wish.wanted), min(WEIGHT_MAX, wish.weight))
    return report._replace(wishes=wishes)


def _check_view(view: View) -> None:
    _check_names(member.lessee for member in view.members)
    for member in view.members:
        _check_facts(member.facts)
    for key, shares in view.shares:
        _check_texts([key], KEY_BYTES_MAX)
        if len(shares) != len(view.members):
            raise ValueError(f"{len(shares)} shares of {len(view.members)} members")


def _check_facts(facts: Facts) -> None:
    _check_texts(facts, FACT_BYTES_MAX)
    _check_texts(facts.values(), FACT_BYTES_MAX)


def _check_names(lessees: Iterable[LesseeId]) -> None:
    for name, _ in lessees:
        if not name or not name.isprintable():  # it is shown
            raise ValueError("not a printable name")
        _check_texts([name], NAME_BYTES_MAX)


def _check_texts(texts: Iterable[str], bytes_max: int) -> None:
    """Refuse texts of more than `bytes_max` bytes; the number of characters was bounded before."""
    for text in texts:
        size = len(text if text.isascii() else text.encode())
        if size > bytes_max:
            raise ValueError(f"a text of {size} bytes, at most {bytes_max} allowed")


# Frames


class SignatureError(MessageError):
    """A frame is not signed with this process's secret."""

    cause = "secret"

    def __init__(self) -> None:
        super().__init__("wrong signature: fleet.secret_file must be the same in all members")


class TlsMismatchError(MessageError):
    """The peer speaks TLS, and this process does not."""

    cause = "tls"

    def __init__(self) -> None:
        super().__init__("the peer speaks TLS, and this process does not: [fleet.tls] must be in all members")


class Frames:
    """Signs and verifies the frames of one connection; pure, except for the random nonce and `receive`.

    Args:
        secret: the fleet's secret; empty without one.
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
        """Return the first frame of this side: version and nonce."""
        return _frame(b"", _HELLO + self._nonce, b"")

    def proof(self) -> bytes:
        """Return the second frame, which proves the secret; the holder's comes after the member's."""
        assert not self._sent, "the proof comes first"
        return self._signed(_HELLO + self._nonce)

    def no_proof(self) -> bytes:
        """Return a second frame that is not signed: by it a member with another secret notices the difference."""
        return self.hello()

    def write(self, message: bytes) -> bytes:
        """Return the signed frame of a message; this side must have sent its proof before."""
        assert self._sent, "the proof comes first"
        return self._signed(message)

    def open(self, frame: bytes) -> bytes:
        """Verify a frame (without its length) that came after the hello, and return its message.

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
        """Take the other side's hello: derive the key of all further signatures from the secret and both nonces.

        Raises:
            MessageError: it is not a hello; VersionError: of another version.
        """
        message = frame[SIGNATURE_BYTES:]
        nonce = _nonce(message)  # first, so that another version is reported as such
        if not hmac.compare_digest(frame[:SIGNATURE_BYTES], _digest(b"", message)):
            raise MessageError("a hello comes first")
        nonces = (self._nonce, nonce) if self._holder else (nonce, self._nonce)
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


def _nonce(hello: bytes) -> bytes:
    """Return the nonce of a hello.

    Raises:
        MessageError: it is none; VersionError: of another version.
    """
    if hello[:4] != _MAGIC:
        raise MessageError("byte 0: this is not Sluice's fleet protocol")
    version = hello[4] if len(hello) > 4 else 0
    if version != VERSION:
        problem = f"version {version} of the fleet protocol; this process has {VERSION}"
        raise VersionError(f"byte 4: {problem}, and all members need the same")
    if not hello.startswith(_HELLO) or len(hello) != HELLO_BYTES:
        raise MessageError("byte 5: a hello comes first")
    return hello[len(_HELLO) :]
