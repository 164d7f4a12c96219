"""One request, or one request and its response: shorter than a dialogue, so that a fuzzer gets deeper into a message.

request    kind, configuration (3 bytes), key, version, client id, flags, [how it is stretched], body
answer     kind, configuration (3 bytes), key, version, length of the request's body (2 bytes), that body, flags,
           [how it is stretched], the response's body
"""

import struct
from contextlib import suppress
from typing import Final

from protocol.api import API_NAMES, flexible
from protocol.errors import WireError
from proxy.channel import PeerError
from tests.fuzz.channels import KINDS, channel
from tests.fuzz.dialogue import CLIENTS, request, response_frame
from tests.fuzz.draw import Draw, stretched
from tests.fuzz.shell import Shell
from tests.support.playbook import next_owed

_KINDS: Final = tuple(KINDS)
_CLOSED: Final = (PeerError, WireError)
_STRETCHED, _CUT, _TAGGED = 1, 2, 4


def _flags(draw: Draw) -> tuple[int, int, tuple[int, int, int, int] | None]:
    """Flags, the size of pieces, and how a body is stretched."""
    flags = draw.byte()
    size = draw.byte() if flags & _CUT else 0
    how = (draw.int16(), draw.byte(), draw.byte(), draw.byte()) if flags & _STRETCHED else None
    return flags, size, how


def asked(data: bytes) -> None:
    """One request."""
    draw = Draw(data)
    kind = draw.pick(_KINDS)
    shell = Shell(channel(kind, draw))
    key, version, client = draw.int8(), draw.int8(), draw.pick(CLIENTS)
    flags, size, how = _flags(draw)
    body = draw.rest()
    if how is not None:
        body = stretched(body, *how)
    head = request(key, version, 1, client)
    if flags & _TAGGED and flexible(key, version):
        head = head[:-1]  # its tags are in the body
    shell.cut(size or 1 << 16)
    _say(shell, struct.pack(">i", len(head) + len(body)) + head + body, None, _label(kind, key, version))


def responded(data: bytes) -> None:
    """One request and its response."""
    draw = Draw(data)
    kind = draw.pick(_KINDS)
    shell = Shell(channel(kind, draw))
    key, version = draw.int8(), draw.int8()
    sent = request(key, version, 1, b"a") + draw.take(draw.int16())
    flags, size, how = _flags(draw)
    body = draw.rest()
    if how is not None:
        body = stretched(body, *how)
    if flexible(key, version) and not flags & _TAGGED:
        body = b"\0" + body
    _say(shell, struct.pack(">i", len(sent)) + sent, (body, size), _label(kind, key, version))


def _say(shell: Shell, sent: bytes, said: tuple[bytes, int] | None, label: str) -> None:
    try:
        with suppress(*_CLOSED):
            shell.client(sent, label)
            if said is not None:
                body, size = said
                shell.cut(size or 1 << 16)
                correlation_id, _ = next_owed(shell.channel) or (1, 0)
                shell.broker(response_frame(correlation_id, body), label)
            shell.later(10_000)
    finally:
        shell.channel.close(shell.now_ms)


def _label(kind: str, key: int, version: int) -> str:
    return f"{kind} {API_NAMES.get(key, 'unknown')} version {version}"
