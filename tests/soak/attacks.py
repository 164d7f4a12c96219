"""What hostile clients send first, by kind; no socket, no clock."""

import random
import struct
from typing import Final

from tests.support.frames import LIST_OFFSETS, api_versions, filler, frame, produce, request

JOIN_GROUP: Final = 11
METADATA: Final = 3
_REQUESTS: Final = 200
_HALF_FRAME_BYTES: Final = 4096
_GARBAGE_BYTES_MAX: Final = 4096
_ANNOUNCED_BYTES: Final = 100_000_000
_LENGTH_MAX: Final = 0x7FFFFFFF
_NAMES: Final = 100
LIMITED: Final = 50
"""So many of the names have a producer's quota."""


def nothing(_: random.Random) -> bytes:
    """Send nothing."""
    return b""


def half_header(chance: random.Random) -> bytes:
    """Send some of a request's first bytes.

    >>> len(half_header(random.Random(1))) < 14
    True
    """
    return api_versions(client_id="half")[: chance.randrange(1, 14)]


def half_join_group(chance: random.Random) -> bytes:
    """Send half of a request that is kept until it is whole."""
    return request(JOIN_GROUP, 5, b"\0\1g", client_id=_name(chance), size=_HALF_FRAME_BYTES)[
        : _HALF_FRAME_BYTES // 2
    ]


def one_request(chance: random.Random) -> bytes:
    """Ask once."""
    return api_versions(client_id=_name(chance))


def many_requests(chance: random.Random) -> bytes:
    """Ask for all topics many times."""
    whole = request(METADATA, 9, b"\0\0\0\0\0", client_id=_name(chance))
    return whole * _REQUESTS


def oversized(chance: random.Random) -> bytes:
    """Send a frame, or a client id, longer than anything allows."""
    if chance.random() < 0.5:
        return struct.pack(">i", _LENGTH_MAX) + filler(100)
    return struct.pack(">ihhih", 30_000, LIST_OFFSETS, 7, 1, 20_000) + filler(20_000)


def garbage(chance: random.Random) -> bytes:
    """Send random bytes, or a frame of them."""
    some = chance.randbytes(chance.randrange(1, _GARBAGE_BYTES_MAX))
    return some if chance.random() < 0.5 else frame(some)


def announced(chance: random.Random) -> bytes:
    """Announce a Produce of 100 MB in a name with a quota, and send its header alone.

    Without a quota the header would pass, and a broker allocates what a header announces: a few such connections leave
    it without memory, and one that is out of memory drops single responses and goes on.
    """
    whole = produce(9, 100, client_id=f"hostile-{chance.randrange(LIMITED)}")
    return struct.pack(">i", _ANNOUNCED_BYTES) + whole[4:40]


def _name(chance: random.Random) -> str:
    return f"hostile-{chance.randrange(_NAMES)}"
