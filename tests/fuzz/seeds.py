"""Makes the beginning of what is kept for Sluice's own formats (`python -m tests.fuzz.seeds`): they change with it.

What is kept already stays behind them; `tests.fuzz.minimise` throws out what adds nothing. Other targets read what
Kafka, TLS or people write; their inputs are kept as they are.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from proxy.config import Address
from proxy.fleet import messages as fleet_codec
from proxy.fleet.election import NO_TERM, Claim, Lasting, Ruling, Statements, Term
from proxy.fleet.messages import NONCE_BYTES, Frames, MemberView, View
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.records import Author, key_of, value_of
from quotas.sharing.lease_values import Grants, LesseeId, Report, Wish
from tests.fuzz import corpus


def _sized(body: bytes) -> bytes:
    return struct.pack(">H", len(body)) + body


def _fleet() -> Iterator[bytes]:
    a, b = LesseeId("a", 1), LesseeId("b", 2)
    first = [
        fleet_codec.write(Report(lessee, 0, 1, 0, {"k": Wish(1.0, 3.0)}, {"": 0.25, "k": 0.25}, 4))
        for lessee in (a, b)
    ]
    second = [
        fleet_codec.write(Report(lessee, session, 2, 1, {"k": None}, {}, 4))
        for session, lessee in ((1, a), (2, b))
    ]
    yield b"".join(b"\0" + _sized(message) for message in (*first, *second))
    yield b"".join(b"\4" + _sized(message) for message in (first[0], *second, first[1]))
    grants = [
        fleet_codec.write(Grants(1, 1, version, version, 15_000, shares, version == 1, 4))
        for version, shares in ((1, {"": 0.2, "k": 0.5}), (2, {"k": None}))
    ]
    yield b"".join(b"\2" + _sized(message) for message in grants)
    members = (MemberView(a, 5, 7, {"version": "1"}), MemberView(b, 5, 7, {"version": "2"}))
    for message in (
        View(False, members, (("k", (0.5, 0.25)),)),
        fleet_codec.Refusal("a", "b"),
        fleet_codec.Lost("c"),
        fleet_codec.Leave(),
        fleet_codec.Question(1, b"d"),
        fleet_codec.Response(1, b"e"),
        fleet_codec.Told({"d": "e"}),
    ):
        yield b"\0" + _sized(fleet_codec.write(message))


def _fleet_frames() -> Iterator[bytes]:
    hello = Frames(b"secret", holder=False).hello()
    yield b"\0" + hello
    yield b"\0" + hello[:20] + b"\1" + hello[21:] + b"more"
    yield b"\0\x16\3\1\2\0\1\0"
    yield b"\0GET / HTTP/1.1\r\n\r\n"
    yield b"\1\0\3abc\2\0\0\x06"


def _fleet_claims() -> Iterator[bytes]:
    a, b = Address("gw-1", 19070), Address("10.0.0.2", 19070)
    nonce, signed, unsigned = (
        bytes(NONCE_BYTES),
        Statements(b"other", "__sluice"),
        Statements(b"", "__sluice"),
    )
    claims = (
        Claim("a", a, 1, 0, NO_TERM, nonce),
        Claim("b", b, 2, 4, Term(4, 2), nonce),
        Claim("c", None, 3, 0, Term(4, 2), nonce),
    )
    ruling = Ruling("b", b, Term(4, 2), Term(4, 2))
    for statements in (signed, unsigned):
        said = [statements.write_claim(claim, str(number)) for number, claim in enumerate(claims)]
        ruled = statements.write_ruling([(ruling, False)], "0", nonce)
        yield bytes((len(said),)) + b"".join(bytes((len(one),)) + one for one in said) + ruled
        yield b"\0" + statements.write_lasting(Lasting(20_310, Term(4, 2)), "b").encode()
    yield b"\2\3abc\0" + unsigned.write_ruling([(ruling, False)], "0", nonce)[:-1]


def _quota_records() -> Iterator[bytes]:
    author = Author("ann", "10.0.0.4:51000", "2026-01-31T12:00:00.000Z")
    pairs = [
        (key_of(entity, limit), value_of(value, author))
        for entity, limit, value in (
            (Entity("ann"), "producer_byte_rate", 2e6),
            (Entity("ann", DEFAULT), "consumer_byte_rate", 0.5),
            (Entity(topic="t"), "producer_byte_rate", 5.0),
            (Entity(ip="10.0.0.1"), "connection_creation_rate", 5.0),
        )
    ]
    yield b"".join(_sized(key) + _sized(value) for key, value in pairs)
    yield b"".join(_sized(key) + _sized(b"") for key, _ in pairs)
    yield _sized(pairs[0][0]) + _sized(b'{"v":2,"value":5}')


def _journal() -> Iterator[bytes]:
    moved = {"topic": "t", "partition": 0}
    step = {
        **moved,
        "replicas": [3, 1],
        "adds": [3],
        "drops": [],
        "elects": None,
        "current": [1],
        "leader": 1,
    }
    asked = {"target": [3], "cancels": False, "step": step, "by": "x/1"}
    entry = {"kind": "entry", **moved, "topic_id": "ab", "original": [1], "target": [3], "asked": asked}
    for fields in (
        entry | {"step": step, "cancelled": False, "unsure": False},
        {"kind": "ended", **moved, "how": "done"},
        {"kind": "term", "number": 3, "executor": "x/1"},
    ):
        text = b"7 " + json.dumps(fields, separators=(",", ":")).encode()
        yield b"\1" + text
        yield b"\0%08x %s" % (zlib.crc32(text), text)


SEEDS: Final[Mapping[str, Callable[[], Iterator[bytes]]]] = {
    "fleet": _fleet,
    "fleet-frames": _fleet_frames,
    "fleet-claims": _fleet_claims,
    "quota-records": _quota_records,
    "journal": _journal,
}


if __name__ == "__main__":
    for target, make in SEEDS.items():
        print(target, corpus.write(target, [*make(), *corpus.read(target)]))
