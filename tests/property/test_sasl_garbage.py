"""SASL exchanges, damaged and cut anywhere, on either side: each end has a named cause, no client gets another's name.

Tokens are valid but for the damage, with and without Kafka headers, and ordinary requests follow.
"""

import struct
from contextlib import suppress
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.errors import WireError
from proxy.channel import PeerError
from tests.property.test_channel_garbage import DAMAGE, Damage, damaged
from tests.support.frames import LIST_OFFSETS, frame, request, some_response
from tests.support.memory_shell import MemoryShell
from tests.support.playbook import Playbook, playbook

FUZZ: Final = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
EXCHANGES: Final = {
    "PLAIN": [(b"\0alice\0secret", b"")],
    "SCRAM-SHA-256": [
        (b"n,,n=alice,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"),
        (b"c=biws,r=abcdef,p=cA==", b"v=c2ln"),
    ],
    "OAUTHBEARER": [(b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.\x01\x01", b"")],
    "GSSAPI": [
        (b"\x60" + bytes(30), b"\x60"),
        (b"", b"\x05\x04" + bytes(28)),
        (b"\x05\x04" + bytes(30), b""),
    ],
}
Frames = list[tuple[bytes, bytes]]


@st.composite
def exchanges(draw: st.DrawFn) -> Frames:
    """Requests and responses of one exchange and what follows it."""
    mechanism = draw(st.sampled_from(sorted(EXCHANGES)))
    version = draw(st.sampled_from([0, 1]))
    name = struct.pack(">h", len(mechanism)) + mechanism.encode()
    frames = [(request(HANDSHAKE, version, name), frame(struct.pack(">ihi", 1, 0, 0)))]
    for sent, response in EXCHANGES[mechanism]:
        if version:
            asked = request(AUTHENTICATE, 1, struct.pack(">i", len(sent)) + sent)
            said = frame(struct.pack(">ihhi", 1, 0, -1, len(response)) + response + bytes(8))
            frames.append((asked, said))
        else:
            frames.append((frame(sent), frame(response)))
    return [*frames, (request(LIST_OFFSETS, 7, size=60), some_response(30))]


def relay(frames: Frames, pieces: list[int]) -> Playbook:
    """Relay everything, cut into pieces; a PeerError or WireError ends it."""
    talk = playbook()
    responses = iter([said for _, said in frames])
    MemoryShell(
        talk.channel, lambda _: next(responses, b""), b"".join(asked for asked, _ in frames), pieces
    ).run()
    return talk


PIECES = st.lists(st.integers(1, 64), min_size=1, max_size=6)


@FUZZ
@given(frames=exchanges(), pieces=PIECES)
def test_exchange_in_any_pieces_names_its_user(frames: Frames, pieces: list[int]) -> None:
    talk = relay(frames, pieces)
    assert talk.user in ("alice", "")
    assert (talk.user == "") == (b"GSSAPI" in frames[0][0])
    assert not talk.owed
    talk.channel.close(0)
    assert not [label for label, result in talk.stats.sasl if result == "failed"], "it is over"


@FUZZ
@given(frames=exchanges(), pieces=PIECES, damage=DAMAGE, which=st.integers(0, 100), client=st.booleans())
def test_damaged_exchange_ends_with_a_cause(
    frames: Frames, pieces: list[int], damage: Damage, which: int, client: bool
) -> None:
    index = which % len(frames)
    asked, said = frames[index]
    frames[index] = (damaged(asked, damage), said) if client else (asked, damaged(said, damage))
    with suppress(PeerError, WireError):
        relay(frames, pieces)
