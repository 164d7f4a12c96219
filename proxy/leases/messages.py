"""Requests and responses about leases <-> bytes; pure.

All numbers are big-endian. A message has three fields and the content of its kind:

    magic "SLLE"  version u8 = 1  kind u8
    1 request     name (u8 length, UTF-8), run u64, number u64, taken u64, digest of the terms u32,
                  count u16, then of each follower: id i32, quota f64, wanted f64
    2 answer      run u64, number u64, holder u64, learning u8,
                  count u16, then of each follower: id i32, quota f64, share f64, hold_ms u32
    3 refusal     text (u16 length, UTF-8)

There is one version. Another one is refused with a message, so peers may be upgraded before or after the holder, and
have equal shares meanwhile. Permissions are not checked here.
"""

import math
import struct
import zlib
from typing import Final

from quotas.sharing.terms import FOLLOWERS_MAX, Grant, LeaseAnswer, LeaseRequest, LeaseTerms, Wish

__all__ = [
    "MESSAGE_BYTES_MAX",
    "NAME_BYTES_MAX",
    "MessageError",
    "RefusalError",
    "digest",
    "read_answer",
    "read_request",
    "write_answer",
    "write_refusal",
    "write_request",
]

NAME_BYTES_MAX: Final = 64
_REFUSAL_BYTES_MAX: Final = 500
_HEAD: Final = struct.Struct(">4sBB")
_MAGIC: Final = b"SLLE"
_VERSION: Final = 1
_REQUEST, _ANSWER, _REFUSAL = 1, 2, 3
_ASKS: Final = struct.Struct(">QQQIH")
_SAYS: Final = struct.Struct(">QQQBH")
_WISH: Final = struct.Struct(">idd")
_GRANT: Final = struct.Struct(">iddI")
MESSAGE_BYTES_MAX: Final = _HEAD.size + 1 + NAME_BYTES_MAX + _ASKS.size + FOLLOWERS_MAX * _GRANT.size
U64_MAX: Final = 2**64 - 1


class MessageError(Exception):
    """Malformed bytes, with the offset of the error."""


class RefusalError(Exception):
    """The holder has refused the request; the message is the holder's."""


def digest(terms: LeaseTerms) -> int:
    """Return a checksum of the terms; the order of names does not matter."""
    return zlib.crc32("\n".join([*sorted(terms.peers), str(terms.lease_ms)]).encode())


def write_request(request: LeaseRequest, terms: LeaseTerms) -> bytes:
    """Encode a request."""
    name = request.name.encode()
    wishes = request.wishes
    head = _HEAD.pack(_MAGIC, _VERSION, _REQUEST) + bytes((len(name),)) + name
    head += _ASKS.pack(request.run, request.number, request.taken, digest(terms), len(wishes))
    return head + b"".join(_WISH.pack(*wish) for wish in wishes)


def read_request(message: bytes) -> tuple[LeaseRequest, int]:
    """Decode a request, and the digest of its sender's terms.

    Raises:
        MessageError: it is malformed.
    """
    at = _head(message, _REQUEST)
    if at >= len(message) or message[at] > NAME_BYTES_MAX:
        raise MessageError(f"byte {at}: no name, or a name longer than {NAME_BYTES_MAX} bytes")
    name = message[at + 1 : at + 1 + message[at]]
    at += 1 + message[at]
    run, number, taken, terms, count = _unpack(_ASKS, message, at)
    at = _entries(message, at + _ASKS.size, count, _WISH)
    wishes = []
    for follower, quota, wanted in _WISH.iter_unpack(message[at:]):
        if follower < 0 or math.isnan(quota) or quota < 0 or not (math.isfinite(wanted) and wanted >= 0):
            raise MessageError(f"follower {follower}: quota {quota}, wanted {wanted}")
        wishes.append(Wish(follower, quota, wanted))
    return LeaseRequest(_text(name), run, number, taken, tuple(wishes)), terms


def write_answer(answer: LeaseAnswer) -> bytes:
    """Encode a response."""
    head = _HEAD.pack(_MAGIC, _VERSION, _ANSWER)
    head += _SAYS.pack(answer.run, answer.number, answer.holder, answer.learning, len(answer.grants))
    return head + b"".join(_GRANT.pack(*grant) for grant in answer.grants)


def read_answer(message: bytes) -> LeaseAnswer:
    """Decode a response.

    Raises:
        MessageError: it is malformed.
        RefusalError: it is a refusal.
    """
    if _kind(message) == _REFUSAL:
        (length,) = _unpack(struct.Struct(">H"), message, _HEAD.size)
        raise RefusalError(_text(message[_HEAD.size + 2 : _HEAD.size + 2 + min(length, _REFUSAL_BYTES_MAX)]))
    at = _head(message, _ANSWER)
    run, number, holder, learning, count = _unpack(_SAYS, message, at)
    at = _entries(message, at + _SAYS.size, count, _GRANT)
    grants = []
    for follower, quota, share, hold_ms in _GRANT.iter_unpack(message[at:]):
        # In this form the comparison is false for NaN.
        if follower < 0 or not (0 <= quota < math.inf and 0 < share <= 1):
            raise MessageError(f"follower {follower}: quota {quota}, share {share}")
        grants.append(Grant(follower, quota, share, hold_ms))
    return LeaseAnswer(run, number, holder, bool(learning), tuple(grants))


def write_refusal(problem: str) -> bytes:
    """Encode a refusal."""
    text = problem.encode()[:_REFUSAL_BYTES_MAX]
    return _HEAD.pack(_MAGIC, _VERSION, _REFUSAL) + struct.pack(">H", len(text)) + text


def _kind(message: bytes) -> int:
    if len(message) < _HEAD.size:
        raise MessageError(f"byte 0: {len(message)} bytes are not a message")
    magic, version, kind = _HEAD.unpack_from(message)
    if magic != _MAGIC:
        raise MessageError("byte 0: this is not Sluice's lease protocol")
    if version != _VERSION:
        raise MessageError(f"byte 4: version {version}; only {_VERSION} is supported")
    return int(kind)


def _head(message: bytes, wanted: int) -> int:
    kind = _kind(message)
    if kind != wanted:
        raise MessageError(f"byte 5: a message of kind {kind}, expected {wanted}")
    return _HEAD.size


def _unpack(what: struct.Struct, message: bytes, at: int) -> tuple[int, ...]:
    if len(message) < at + what.size:
        raise MessageError(f"byte {at}: {what.size} bytes expected, {max(0, len(message) - at)} left")
    return what.unpack_from(message, at)


def _entries(message: bytes, at: int, count: int, entry: struct.Struct) -> int:
    if count > FOLLOWERS_MAX:
        raise MessageError(f"byte {at - 2}: {count} followers, at most {FOLLOWERS_MAX} allowed")
    if len(message) != at + count * entry.size:
        raise MessageError(f"byte {at}: {count} followers announced, {len(message) - at} bytes left")
    return at


def _text(found: bytes) -> str:
    return found.decode("utf-8", "replace")
