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
from tests.fuzz.channels import channel
from tests.fuzz.draw import Draw, stretched
from tests.fuzz.shell import Shell
from tests.support.playbook import next_owed

CLIENTS: Final[tuple[bytes | None, ...]] = (
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
        draw = self.draw
        how = (draw.int16(), draw.byte(), draw.byte(), draw.byte()) if stretch else None
        found = draw.take(draw.int16())
        return found if how is None else stretched(found, *how)

    def header(self) -> tuple[int, int, bytes]:
        """Read what stands in a request's header: key, version, and all of it as bytes."""
        key, version, client = self.draw.int8(), self.draw.int8(), self.draw.pick(CLIENTS)
        self._correlation_id += 1
        return key, version, request(key, version, self._correlation_id, client)

    def owed(self, body: bytes) -> None:
        """The broker responds to what it owes."""
        correlation_id, version = next_owed(self.shell.channel) or (0, 0)
        self.shell.broker(response_frame(correlation_id, body), f"{self.kind} version {version}")


def request(key: int, version: int, correlation_id: int, client: bytes | None) -> bytes:
    """A request's header without its length."""
    head = struct.pack(">hhih", key, version, correlation_id, -1 if client is None else len(client))
    return head + (client or b"") + (b"\0" if flexible(key, version) else b"")


def response_frame(correlation_id: int, body: bytes) -> bytes:
    """A response with its length; a bare token where one is owed."""
    whole = body if correlation_id == BARE_TOKEN else struct.pack(">i", correlation_id) + body
    return struct.pack(">i", len(whole)) + whole


def _label(kind: str, key: int, version: int) -> str:
    return f"{kind} {API_NAMES.get(key, 'unknown')} version {version}"


def _request(script: _Script, *, stretch: bool) -> None:
    key, version, head = script.header()
    whole = head + script.body(stretch=stretch)
    script.shell.client(struct.pack(">i", len(whole)) + whole, _label(script.kind, key, version))


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
    whole = struct.pack(">i", question.correlation_id) + body
    if question.plan is None and question.api_key == ALTER_PARTITION_REASSIGNMENTS:
        head = request(question.api_key, question.version, question.correlation_id, b"a")
        frame = struct.pack(">i", len(head) + len(body)) + head + body
        shell.channel.responded(Forward(question.api_key, frame, "a plan"))
        shell.later(0)
    else:
        shell.respond_to_question(struct.pack(">i", len(whole)) + whole)


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
