"""Messages between processes as bytes."""

from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from protocol.messages.reassignments import Ongoing, Stepping
from proxy.admin.clients import ClientPart
from proxy.channel import Question, ShownMove
from proxy.config import Address, CaptureOptions, Config, ListenerOptions, ListenerTls
from proxy.control.cluster import KnownBrokers
from proxy.explain.documents import Neighbour, PushedTimes
from proxy.explain.report import BrokerReport, ClientReport, ConnectionReport, Query, Seen
from proxy.explain.rules import Rule
from proxy.explain.waiting import Judgement, Waiter
from proxy.metrics.merging import Part, of_process
from proxy.metrics.series import Row, Totals
from proxy.process import messages
from proxy.process.messages import Beat, FrameError, Frames, Message, QuotaBatch, Response, Start, frame_of
from proxy.process.shares import terms_of
from proxy.process.workers import part_of
from quotas.sharing.lease_values import Grants, LesseeId, Report, Wish
from quotas.throttles.figures import QuotaView


def test_configuration_comes_back_with_its_paths_and_networks() -> None:
    tls = ListenerTls(cert_file=Path("/tls/cert.pem"), key_file=Path("/tls/key.pem"))
    upstreams = MappingProxyType({1: Address("broker", 9092)})
    listener = ListenerOptions(
        upstreams=upstreams,
        proxy_protocol_sources=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        tls=tls,
    )
    config = Config(listeners=(listener,), capture=CaptureOptions(directory=Path("capture")))
    start = Start(1, part_of(config, 2), 2, terms_of(2), enforcing=True)
    (found,) = Frames().receive(frame_of(start))
    assert isinstance(found, Start)
    assert found == start
    assert found.config.listeners[0].proxy_protocol_sources == listener.proxy_protocol_sources
    assert isinstance(found.config.capture.directory, Path)


RULE = Rule("produce", "producer_byte_rate")
QUESTION = Question(49, 0, 7, b"frame", 20, "ann", False, address="192.0.2.1", peer="192.0.2.1:9")
MOVE = ShownMove(Ongoing((1, 2), (2,), (1,)), Stepping((1,), (1, 2)))
VIEW = QuotaView("ann", "web", "Produce", 1.5, None, 10, 1, 1, 0, 0, 0.5)
ROW = Row("Produce", "ann", "web", 1.5, 2.0, 0.0, Totals(bytes=10), rates={1: 1.5})
CONNECTION = ConnectionReport("192.0.2.1:9", 1, 50, (1.0, 2.0))
PUSHED = PushedTimes(kind="produce", longest_ms=5.0, seconds_ago=1.0)
CLIENT = ClientReport(
    "ann", "web", (CONNECTION,), 1, (1.0, 2.0), ((RULE, 5.0),), 1.0, 2.0, telemetry=(PUSHED,)
)
SEEN = Seen(
    (CLIENT,), {RULE: (Neighbour("bob", "b", 2.0),)}, (BrokerReport(1, (1.0,)),), backlogs={RULE: 7.0}
)
EVERY: list[Message] = [
    Start(1, Config(), 1 << 62, terms_of(2), enforcing=True),
    messages.Configure(Config()),
    QuotaBatch({"-=:a": {"producer_byte_rate": 1.0}}, complete=True),
    messages.Brokers(KnownBrokers({1: Address("broker", 9092)}, (1,), {"broker": "192.0.2.7"})),
    messages.TopicsNamed({b"i" * 16: "t"}),
    messages.Moves({("t", 0): MOVE, ("t", 1): None}),
    messages.ReadCertificates(),
    messages.Enforce(on=False),
    messages.Granted(Grants(1, 2, 3, 4, 15_000, {"key": 0.5, "": None}, True, 2)),
    messages.Granted(None),
    Response(1, b"frame"),
    messages.Forwarded(1, 45, b"frame", b"plan"),
    messages.Refusal(1, "cause", "detail"),
    messages.Scrape(1, "weights"),
    messages.TakeRows(1, {"clients": frozenset({("Produce", "ann", "web")})}),
    messages.Look(1, Query(1, ("ann", "web"))),
    messages.Drain(hurried=False),
    messages.Ready(),
    messages.Failed("no port"),
    Beat(5, "closed"),
    messages.Reported(
        Report(LesseeId("worker-1", 9), 1, 2, 3, {"key": Wish(1.0, 2.0), "old": None}, {"": 0.1}, 2)
    ),
    messages.Ask(1, QUESTION),
    messages.Ask(2, QUESTION, b"plan"),
    messages.Withdraw(1),
    messages.BrokersSeen({1: Address("broker", 9092)}),
    messages.Judged(Judgement((Waiter("ann", "web", 0.6, RULE),), (Waiter("", "b", 0.1, None),), 3)),
    messages.Dialled(1, "refused"),
    messages.TopicsWanted((b"i" * 16,)),
    messages.Counted(1, ClientPart(1, 0, [VIEW], {("Produce", "ann", "web"): 1.5})),
    messages.Weighed(1, {"clients": [(10, ("Produce", "ann", "web"))]}),
    messages.Taken(1, Part({"clients": [ROW]}, None, of_process())),
    messages.Looked(1, SEEN, more=True),
]


def test_every_message_comes_back() -> None:
    assert {type(message) for message in EVERY} == set(Message.__subclasses__())
    assert list(Frames().receive(b"".join(map(frame_of, EVERY)))) == EVERY


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x00\x00\x00\x00", "a message of 0 bytes"),
        (b"\xff\xff\xff\xff", "a message of 4294967295 bytes"),
        (framed(b"abc"), "Expected `array`"),
        (framed(msgspec.msgpack.encode("text")), "Expected `array`"),
        (framed(msgspec.msgpack.encode(["Exec", 1])), "Invalid value 'Exec'"),
        (framed(msgspec.msgpack.encode(["Beat", "1"])), "Expected `int`, got `str`"),
        (framed(msgspec.msgpack.encode(["Drain", True, True])), "Expected `array` of at most length"),
        (framed(b"\x92\xacTopicsWanted\xdd\xff\xff\xff\xff\x01"), "no message"),
        (framed(b"\x92\xa4Beat\xa1\xff"), "no message"),
        (framed(b"\x92\xa6Looked" + b"\x91" * 100_000), "no message"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        list(Frames().receive(data))


def test_message_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "FRAME_BYTES_MAX", 1000)
    with pytest.raises(FrameError, match="a Response of 10"):
        frame_of(Response(1, bytes(1000)))


def test_path_that_is_no_text_crosses_the_link() -> None:
    config = Config(listeners=(ListenerOptions(tls=ListenerTls(cert_file=Path("/tmp/\udcff/cert.pem"))),))
    (found,) = Frames().receive(frame_of(messages.Configure(config)))
    assert found == messages.Configure(config)


def test_text_that_cannot_be_encoded_is_an_error_of_the_link() -> None:
    with pytest.raises(FrameError, match="cannot be encoded"):
        frame_of(messages.Failed("half a pair: \ud800"))
