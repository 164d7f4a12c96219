"""Makes the corpus's beginning: samples of real messages in each target's own form (`python -m tests.fuzz.seeds`).

What is kept already stays behind them; `tests.fuzz.minimise` throws out what adds nothing.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from protocol.api import FETCH, flexible
from proxy.config import Address
from proxy.fleet import messages as fleet_codec
from proxy.fleet.election import NO_TERM, Claim, Lasting, Ruling, Statements, Term
from proxy.fleet.messages import NONCE_BYTES, Frames, MemberView, View
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.records import Author, key_of, value_of
from quotas.sharing.lease_values import Grants, LesseeId, Report, Wish
from tests.fuzz import corpus
from tests.fuzz.messages import READERS
from tests.fuzz.samples import Sample, samples
from tests.support import der
from tests.support.quota_frames import alter_request, describe_request
from tests.unit.proxy.net.test_proxy_header import HEADERS

_PLAIN, _CAPTURED, _FOLLOWER = 0, 1, 2
_STRETCHED, _OWN_TAGS = 1, 4
# Configuration: nothing but a gateway; every quota under kip13; the same under the schedule; a sidecar that observes.
CONFIGURATIONS: Final = (b"\x01\x00\x00", b"\x79\x07\x01", b"\x7b\x13\x02", b"\x0c\x00\x00")
_SCRIPTS_A_CHANNEL: Final = 12
_ROOT: Final = Path(__file__).resolve().parents[2]


def asked(kind: int, configuration: bytes, one: Sample, how: bytes = b"") -> bytes:
    """An input of `requests`: how it is stretched is five bytes, or none; header's tags are in the body then."""
    own_tags = bool(how) and flexible(one.key, one.version)
    flags = _STRETCHED * bool(how) | _OWN_TAGS * own_tags
    head = bytes((kind,)) + configuration + bytes((one.key, one.version, 0, flags)) + how
    return head + b"\0" * own_tags + one.request


def responded(kind: int, configuration: bytes, one: Sample, how: bytes = b"") -> bytes:
    """An input of `answers`."""
    head = bytes((kind,)) + configuration + bytes((one.key, one.version))
    flags = _OWN_TAGS | _STRETCHED * bool(how)
    return head + _sized(one.request) + bytes((flags,)) + how + one.response


def _sized(body: bytes) -> bytes:
    return struct.pack(">H", len(body)) + body


def _step(number: int, one: Sample) -> bytes:
    """A request and its response, as steps of a dialogue."""
    return bytes((number, one.key, one.version, 0)) + _sized(one.request) + b"\4" + _sized(one.response)


def _script(configuration: bytes, several: Sequence[Sample]) -> bytes:
    steps = (_step(0, one) + (b"\7\x0c" if number % 3 == 2 else b"") for number, one in enumerate(several))
    return configuration + b"\x08\x11" + b"".join(steps)


def _channels() -> Iterator[tuple[str, bytes]]:
    every = list(samples())
    fetches = [one for one in every if one.key == FETCH and one.version >= 12]
    for one, configuration in product(every, CONFIGURATIONS):
        yield "requests", asked(_PLAIN, configuration, one)
        yield "answers", responded(_PLAIN, configuration, one)
    for one in every:
        yield "requests", asked(_CAPTURED, CONFIGURATIONS[1], one)
        yield "answers", responded(_CAPTURED, CONFIGURATIONS[1], one)
    for one in fetches:
        yield "requests", asked(_FOLLOWER, CONFIGURATIONS[1], one)
        yield "answers", responded(_FOLLOWER, CONFIGURATIONS[1], one)
        yield "follower", _script(CONFIGURATIONS[1], [one, one, one])
    for start in range(0, len(every), _SCRIPTS_A_CHANNEL):
        several = every[start : start + _SCRIPTS_A_CHANNEL]
        for configuration in CONFIGURATIONS:
            yield "dialogue", _script(configuration, several[:6])
            yield "captured", _script(configuration, several[6:])
    for exchange in _exchanges():
        yield "dialogue", exchange
        yield "captured", exchange


def _exchanges() -> Iterator[bytes]:
    """SASL, with and without Kafka headers, and a request behind it."""
    scram = ((b"n,,n=alice,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"), (b"c=biws,r=abcdef,p=cA==", b"v=c2ln"))
    gssapi = ((b"\x60" + bytes(9), b"\x60"), (b"", b"\5\4" + bytes(9)), (b"\5\4" + bytes(9), b""))
    tokens: dict[bytes, Sequence[tuple[bytes, bytes]]] = {
        b"PLAIN": ((b"\0alice\0secret", b""),),
        b"SCRAM-SHA-256": scram,
        b"OAUTHBEARER": ((b"n,,\1auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.\1\1", b""),),
        b"GSSAPI": gssapi,
    }
    for mechanism, several in tokens.items():
        for version in (0, 1):
            handshake = Sample(17, version, _sized(mechanism), bytes(6))
            script = b"\xc9\x04\x00" + _step(0, handshake)
            for sent, said in several:
                if version:
                    asked, told = struct.pack(">i", len(sent)) + sent, struct.pack(">i", len(said)) + said
                    script += _step(
                        0, Sample(36, 1, asked, b"\0\0\xff\xff" + told + struct.pack(">q", 60_000))
                    )
                else:
                    script += b"\3" + _sized(struct.pack(">i", len(sent)) + sent) + b"\4" + _sized(said)
            yield script + _step(0, Sample(2, 7, bytes(9), bytes(9)))


def _messages() -> Iterator[tuple[str, bytes]]:
    """Each reader with every message: what it is not made for is thrown out by the minimiser."""
    every = list(samples())
    for number, (name, _) in enumerate(READERS):
        responses = "answer" in name or "rewrite" in name or name in ("sasl", "throttle.patch")
        for one in every:
            head = b"" if responses else struct.pack(">hhih", one.key, one.version, 7, 1) + b"a"
            head += b"\0" if not responses and flexible(one.key, one.version) else b""
            body = struct.pack(">i", 7) + one.response if responses else head + one.request
            yield "messages", bytes((number, one.version, 0)) + body


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
        ruled = statements.write_ruling(ruling, "0", nonce, mine=False)
        yield bytes((len(said),)) + b"".join(bytes((len(one),)) + one for one in said) + ruled
        yield b"\0" + statements.write_lasting(Lasting(20_310, Term(4, 2)), "b").encode()
    yield b"\2\3abc\0" + unsigned.write_ruling(ruling, "0", nonce, mine=False)[:-1]


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


def _tokens() -> Iterator[bytes]:
    yield b"\0\0\0alice\0secret"
    yield b"\1\0n,,n=a=2Cb,r=fyko,tokenauth=true"
    yield b"\2\0n,a=x,\1host=h\1auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.c2ln\1\1"
    yield b"\3\0r=fykoabc,s=c2FsdA==,i=4096\nv=c2ln"


def _certificates() -> Iterator[bytes]:
    yield der.certificate([[("2.5.4.6", 0x13, b"DE")], [("2.5.4.3", der.UTF8, b"alice, \x00#")]])
    yield der.certificate(
        [[("2.5.4.3", 0x1E, b"a"), ("1.2.840.113549.1.9.1", 0x16, b"x@y")]], (0x18, b"20510101000000Z")
    )


def _heads() -> Iterator[bytes]:
    for line in (
        b"",
        b"Accept: text/plain\r\nConnection: close\r\n",
        b"Content-Length: 5\r\n",
        b" folded: x\r\n",
    ):
        yield b"GET /m?x=1 HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n"


def _quota_requests() -> Iterator[bytes]:
    user = (("user", "ann"),)
    for version in (0, 1):
        frame = alter_request(
            [(user, (("producer_byte_rate", 2000.0), ("consumer_byte_rate", None)))],
            validate_only=False,
            correlation_id=5,
            client_id="",
            version=version,
        )
        yield bytes((version,)) + frame[14 + version :]
        frame = describe_request(
            [("user", 0, "ann"), ("client-id", 2, None)],
            strict=False,
            correlation_id=5,
            client_id="",
            version=version,
        )
        yield bytes((version | 2,)) + frame[14 + version :]


def _journal() -> Iterator[bytes]:
    step = {
        "topic": "t",
        "partition": 0,
        "replicas": [3, 1],
        "adds": [3],
        "drops": [],
        "elects": None,
        "current": [1],
        "leader": 1,
    }
    asked = {"target": [3], "cancels": False, "step": step, "by": "x/1"}
    entry = {
        "kind": "entry",
        "topic": "t",
        "partition": 0,
        "topic_id": "ab",
        "original": [1],
        "target": [3],
        "asked": asked,
        "step": step,
        "cancelled": False,
        "unsure": False,
    }
    for fields in (
        entry,
        {"kind": "ended", "topic": "t", "partition": 0, "how": "done"},
        {"kind": "term", "number": 3, "executor": "x/1"},
    ):
        text = b"7 " + json.dumps(fields, separators=(",", ":")).encode()
        yield b"\1" + text
        yield b"\0%08x %s" % (zlib.crc32(text), text)


def _texts() -> Iterator[tuple[str, bytes]]:
    example = (_ROOT / "sluice.example.toml").read_bytes()
    lines = [line for line in example.splitlines() if line.strip() and not line.startswith(b"#")]
    yield "config", b"\n".join(line.partition(b"  #")[0] for line in lines)[:2000]
    yield (
        "config",
        b'[cluster]\nbootstrap="127.0.0.1:9092"\n[[listeners]]\nbind="0.0.0.0"\nadvertised_host="h"\n',
    )
    client = b'[[quota]]\nclient_id="a"\nuser = "<default>"\nproducer_byte_rate = "2M"\n'
    yield "quotas-file", client + b'[[quota]]\nip="10.0.0.1"\nconnection_creation_rate=5\n'
    yield "quotas-file", b"quota = [{client_id = 'x', consumer_byte_rate = 1_000}]\n"
    yield "rules", rb"RULE:^CN=(?<name>.*?),OU=(.*?)$/${name}-$2/L, DEFAULT"
    yield "broker-map", b'{"1": ["broker.example", 9092], "2": ["10.0.0.1", 9093]}'
    yield (
        "tool-files",
        b'\0{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}',
    )
    yield (
        "tool-files",
        b'\xffsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x username="a" password="b";\n',
    )


def main() -> None:
    """Put the seeds before what is kept."""
    found: dict[str, list[bytes]] = {}
    for target, one in (*_channels(), *_messages(), *_texts()):
        found.setdefault(target, []).append(one)
    single = {
        "fleet": _fleet,
        "fleet-frames": _fleet_frames,
        "fleet-claims": _fleet_claims,
        "quota-records": _quota_records,
        "tokens": _tokens,
        "certificate": _certificates,
        "admin": _heads,
        "quota-requests": _quota_requests,
        "journal": _journal,
    }
    found |= {target: list(make()) for target, make in single.items()}
    found["proxy"] = [header for header, _ in HEADERS if len(header) < 300]
    for target, inputs in found.items():
        print(target, len(inputs), corpus.write(target, [*inputs, *corpus.read(target)]))


if __name__ == "__main__":
    main()
