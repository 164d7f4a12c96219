"""Dialogues with a channel, as scripts of bytes: what both peers send, cut anywhere, at any time.

After three bytes of configuration (`channels`) a script is a row of steps, each a byte that says what is sent and then
what that needs:

    0 request           key, version, client id, length (2 bytes), body
    1 stretched         the same, and how its body is stretched (5 bytes: `draw.stretched`)
    2 announced         as 0, in a frame that is longer than what is there (4 bytes: by how much)
    3 from the client   length (2 bytes), bytes as they are
    4 respond           length (2 bytes), body: to what is owed first
    5 stretched         the same, and how its body is stretched
    6 from the broker   length (2 bytes), bytes as they are
    7 later             so many milliseconds, as a power of 2
    8 cut               pieces of this size from now on
    9 shell responds    length (2 bytes), body; or has a broker asked first
    10 end              the channel takes no more, quotas are considered anew, or another broker is there

A request's length is right, and a response's correlation id: most of what a fuzzer changes lies behind both.

One request, or one request and its response, are shorter, so that a fuzzer gets deeper into a message:

    request    kind, configuration (3 bytes), key, version, client id, flags, [how it is stretched], body
    answer     kind, configuration (3 bytes), key, version, length of the request's body (2 bytes), that body, flags,
               [how it is stretched], the response's body
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, API_NAMES, flexible
from protocol.errors import WireError
from proxy.channel import Forward, PeerError
from proxy.channel.direction import BARE_TOKEN
from tests.fuzz.channels import KINDS, channel
from tests.fuzz.draw import Draw, stretching
from tests.fuzz.shell import Shell
from tests.support.frames import frame
from tests.support.playbook import next_owed

_CLIENTS: Final[tuple[bytes | None, ...]] = (
    b"a",
    b"b",
    None,
    b"",
    "é".encode(),
    b"\xff\xfe",
    b"n" * 300,
    b"n" * 32_767,
)
_CLOSED: Final = (PeerError, WireError)
_POWERS: Final = 24  # 2 ** 24 ms are more than four hours


class _Script:
    """A script that is being carried out."""

    def __init__(self, kind: str, draw: Draw) -> None:
        self.draw = draw
        self.kind = kind
        self.shell = Shell(channel(kind, draw))
        self._correlation_id = 0

    def run(self) -> None:
        """Carry out all steps, or as many as the peers may say."""
        shell = self.shell
        try:
            with suppress(*_CLOSED):
                while self.draw:
                    STEPS[self.draw.byte() % len(STEPS)](self)
        finally:
            shell.channel.close(shell.now_ms)

    def body(self, *, stretch: bool) -> bytes:
        """Read a body and, where it is stretched, how."""
        how = stretching(self.draw, stretch)
        return how(self.draw.take(self.draw.int16()))

    def header(self) -> tuple[int, int, bytes]:
        """Read what stands in a request's header: key, version, and all of it as bytes."""
        key, version, client = self.draw.int8(), self.draw.int8(), self.draw.pick(_CLIENTS)
        self._correlation_id += 1
        return key, version, _head(key, version, self._correlation_id, client)

    def owed(self, body: bytes) -> None:
        """The broker responds to what it owes."""
        correlation_id, version = next_owed(self.shell.channel) or (0, 0)
        self.shell.broker(_response_frame(correlation_id, body), f"{self.kind} version {version}")


def _head(key: int, version: int, correlation_id: int, client: bytes | None) -> bytes:
    """A request's header without its length."""
    head = struct.pack(">hhih", key, version, correlation_id, -1 if client is None else len(client))
    return head + (client or b"") + (b"\0" if flexible(key, version) else b"")


def _response_frame(correlation_id: int, body: bytes) -> bytes:
    """A response with its length; a bare token where one is owed."""
    return frame(body if correlation_id == BARE_TOKEN else struct.pack(">i", correlation_id) + body)


def _label(kind: str, key: int, version: int) -> str:
    return f"{kind} {API_NAMES.get(key, 'unknown')} version {version}"


def _request(script: _Script, *, stretch: bool) -> None:
    key, version, head = script.header()
    script.shell.client(frame(head + script.body(stretch=stretch)), _label(script.kind, key, version))


def _announced(script: _Script) -> None:
    key, version, head = script.header()
    more = script.draw.int16() << 16 | script.draw.int16()
    whole = head + script.body(stretch=False)
    length = (len(whole) + more) & 0x7FFFFFFF
    script.shell.client(struct.pack(">i", length) + whole, _label(script.kind, key, version))


def _from_client(script: _Script) -> None:
    script.shell.client(script.body(stretch=False), f"{script.kind} as it is")


def _respond(script: _Script, *, stretch: bool) -> None:
    script.owed(script.body(stretch=stretch))


def _from_broker(script: _Script) -> None:
    script.shell.broker(script.body(stretch=False), f"{script.kind} as it is")


def _later(script: _Script) -> None:
    script.shell.later(1 << script.draw.byte() % _POWERS)


def _cut(script: _Script) -> None:
    script.shell.cut(script.draw.byte())


def _shell_responds(script: _Script) -> None:
    body, shell = script.body(stretch=False), script.shell
    question, shell.question = shell.question, None
    if question is None:
        return
    if question.plan is None and question.api_key == ALTER_PARTITION_REASSIGNMENTS:
        head = _head(question.api_key, question.version, question.correlation_id, b"a")
        shell.channel.responded(Forward(question.api_key, frame(head + body), "a plan"))
        shell.later(0)
    else:
        shell.respond_to_question(frame(struct.pack(">i", question.correlation_id) + body))


def _end(script: _Script) -> None:
    draw, shell = script.draw, script.shell
    kind = draw.byte() % 3
    if kind == 0:
        shell.channel.end_intake()
    elif kind == 1:
        shell.channel.reconsider()
    else:
        shell.channel.broker_changed(draw.byte())
    shell.later(0)


STEPS: Final[tuple[Callable[[_Script], None], ...]] = (
    partial(_request, stretch=False),
    partial(_request, stretch=True),
    _announced,
    _from_client,
    partial(_respond, stretch=False),
    partial(_respond, stretch=True),
    _from_broker,
    _later,
    _cut,
    _shell_responds,
    _end,
)


def converse(kind: str, data: bytes) -> None:
    """Carry out a script with a channel of this kind."""
    _Script(kind, Draw(data)).run()


_KINDS: Final = tuple(KINDS)
_STRETCHED, _CUT, _TAGGED = 1, 2, 4


def asked(data: bytes) -> None:
    """One request."""
    draw = Draw(data)
    kind = draw.pick(_KINDS)
    shell = Shell(channel(kind, draw))
    key, version, client = draw.int8(), draw.int8(), draw.pick(_CLIENTS)
    flags, size, body = _flagged(draw)
    head = _head(key, version, 1, client)
    if flags & _TAGGED and flexible(key, version):
        head = head[:-1]  # its tags are in the body
    shell.cut(size)
    _say(shell, head + body, None, _label(kind, key, version))


def responded(data: bytes) -> None:
    """One request and its response."""
    draw = Draw(data)
    kind = draw.pick(_KINDS)
    shell = Shell(channel(kind, draw))
    key, version = draw.int8(), draw.int8()
    sent = _head(key, version, 1, b"a") + draw.take(draw.int16())
    flags, size, body = _flagged(draw)
    if flexible(key, version) and not flags & _TAGGED:
        body = b"\0" + body
    _say(shell, sent, (body, size), _label(kind, key, version))


def _flagged(draw: Draw) -> tuple[int, int, bytes]:
    """Flags, the size of pieces, and the body."""
    flags = draw.byte()
    size = (draw.byte() if flags & _CUT else 0) or 1 << 16
    how = stretching(draw, flags & _STRETCHED)
    return flags, size, how(draw.rest())


def _say(shell: Shell, sent: bytes, said: tuple[bytes, int] | None, label: str) -> None:
    try:
        with suppress(*_CLOSED):
            shell.client(frame(sent), label)
            if said is not None:
                body, size = said
                shell.cut(size)
                correlation_id, _ = next_owed(shell.channel) or (1, 0)
                shell.broker(_response_frame(correlation_id, body), label)
            shell.later(10_000)
    finally:
        shell.channel.close(shell.now_ms)
