"""Brokers that respond wrongly: one connection ends under one cause, the others go on, and nothing is left behind.

One proxy meets all faults, one after the other, so a descriptor or a megabyte that one of them costs is seen.
The brokers are scripted; no real one is started.
"""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.process import resident_kib
from tests.cluster import HOST
from tests.support import scripted_broker as broken
from tests.support.frames import LIST_OFFSETS, filler, produce, request
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.scripted_broker import Script, ScriptedBroker
from tests.support.waiting import until
from tests.support.wire import Wire, wired
from tests.support.wire import request as message
from tests.support.workers import PROCESSES

METADATA = 3
SECONDS_MAX = 30.0
IDLE_SECONDS = 2
KIB_MAX = 16 * 1024
"""What a fault may add to the proxy's memory: a few reads, and the allocator's rounding."""
RESIDENT_KIB_MAX = 128 * 1024
"""Of a whole process: 40 MiB at its start, and nothing near the gibibyte that some response announces."""
GIB = 1 << 30


# On clients' connections


@pytest.fixture(scope="module")
def broker() -> Iterator[ScriptedBroker]:
    """One for all tests of this module: each gives it its script."""
    with ScriptedBroker() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def sluice(broker: ScriptedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    limits = {"idle_seconds": IDLE_SECONDS}
    settings = SluiceSettings(broker.address, sections={"limits": limits})
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("broken")) as process:
        until(lambda: responds(process), "broker 1 is known at its port")
        yield process


def responds(sluice: SluiceProcess) -> bool:
    try:
        with wired(sluice.ports.address(1)) as wire:
            return bool(wire.ask(message(METADATA, 9, topics=[])).frame)
    except OSError:
        return False


@pytest.fixture(scope="module")
def descriptors_max(sluice: SluiceProcess) -> int:
    """What the process may have open with one neighbour, however often others have failed."""
    time.sleep(0.2)  # the end of the connection that waited for broker 1
    return (
        sluice.descriptors() + 2 + 2
    )  # the neighbour, its broker; one pipe, which is kept for the next response


@pytest.fixture
def neighbour(sluice: SluiceProcess, broker: ScriptedBroker, descriptors_max: int) -> Iterator[Wire]:
    """Another connection to the same broker; the scripts respond to its client id honestly."""
    broker.script = broken.honest
    with wired(sluice.ports.address(1), "neighbour") as wire:
        wire.ask(message(METADATA, 9, topics=[]))
        yield wire


def only_for(client_id: bytes, script: Script) -> Script:
    """The fault for one client, honesty for the others."""
    return lambda asked: script(asked) if asked.client_id == client_id else broken.honest(asked)


ASKED = request(LIST_OFFSETS, 7, size=100, client_id="victim")
ASKED_TWICE = ASKED + request(LIST_OFFSETS, 7, size=100, client_id="victim", correlation_id=2)
METADATA_ASKED = request(METADATA, 9, b"\1\0\0\0\0", client_id="victim")
QUIET = (
    ""  # the end of an idle connection is counted under no cause: a client may do nothing as long as it likes
)
ENDED = {
    "negative length": (broken.length_of(-1), ASKED, "broker_frame_length"),
    "smallest length": (broken.length_of(-(1 << 31)), ASKED, "broker_frame_length"),
    "length zero": (broken.length_of(0), ASKED, "broker_frame_length"),
    "length below a header's": (broken.length_of(3), ASKED, "broker_frame_length"),
    "goes on behind its end": (broken.shorter_than_what_follows, ASKED, "broker_out_of_order"),
    "wrong correlation id": (broken.wrong_correlation_id, ASKED, "broker_out_of_order"),
    "responds in reverse": (broken.responds_in_reverse, ASKED_TWICE, "broker_out_of_order"),
    "a response without a request": (broken.responds_twice, ASKED, "broker_out_of_order"),
    "responds without end": (broken.frames_for_ever, ASKED, "broker_out_of_order"),
    "closes in place of a response": (broken.closes_first, ASKED, "broker_closed_early"),
    "closes within the head": (broken.closes_within_head, ASKED, "broker_closed_early"),
    "closes within a response": (broken.closes_within(1000), ASKED, "broker_closed_early"),
    "closes within a large response": (broken.closes_within(1_000_000), ASKED, "broker_closed_early"),
    "resets in place of a response": (broken.resets, ASKED, "broker_reset"),
    "resets within a response": (broken.resets_within, ASKED, "broker_reset"),
    "names more brokers than there are": (broken.says(b"\0\0\0\0\0\xff\xff\xff\xff\x0f"), METADATA_ASKED, "malformed"),
    "Metadata that ends at once": (broken.says(b""), METADATA_ASKED, "malformed"),
    "stops within a response": (broken.longer_than_what_follows, ASKED, QUIET),
    "never responds": (broken.never, ASKED, QUIET),
}  # fmt: skip


@pytest.mark.parametrize("fault", ENDED)
def test_broker_that_responds_wrongly_ends_one_connection_under_one_cause(
    sluice: SluiceProcess, broker: ScriptedBroker, neighbour: Wire, descriptors_max: int, fault: str
) -> None:
    script, asked, cause = ENDED[fault]
    errors_before, resident_before = sluice.connection_errors(), resident_kib(sluice.process_id)
    broker.script = only_for(b"victim", script)
    with socket.create_connection(sluice.ports.address(1)) as client:
        client.sendall(asked)
        read_to_the_end(client, lambda: neighbour.ask(message(METADATA, 9, topics=[])))

    def closed() -> bool:
        neighbour.ask(message(METADATA, 9, topics=[]))  # or it would be idle for too long meanwhile
        return sluice.descriptors() <= descriptors_max

    until(closed, "its descriptors are closed")
    expected = dict(errors_before)
    if cause:
        expected[cause] = expected.get(cause, 0) + 1
    assert sluice.connection_errors() == expected
    assert neighbour.ask(message(METADATA, 9, topics=[])).seconds < 1
    assert resident_kib(sluice.process_id) - resident_before < KIB_MAX


def read_to_the_end(client: socket.socket, meanwhile: Callable[[], object]) -> None:
    """Read until the other side closes, and do something in between."""
    client.settimeout(0.2)
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            if not client.recv(1 << 16):
                return
        except TimeoutError:
            meanwhile()
        except ConnectionResetError:
            return
    raise AssertionError(f"the connection did not end within {SECONDS_MAX:.0f} s")


@pytest.mark.parametrize("announced", [GIB, (1 << 31) - 1], ids=["1 GiB", "2 GiB"])
def test_response_without_end_is_not_kept_for_a_client_that_reads_nothing(
    sluice: SluiceProcess, broker: ScriptedBroker, neighbour: Wire, descriptors_max: int, announced: int
) -> None:
    before = resident_kib(sluice.process_id)
    broker.script = only_for(b"victim", broken.for_ever(announced))
    with socket.create_connection(sluice.ports.address(1)) as client:
        client.sendall(ASKED)
        for _ in range(20):
            assert neighbour.ask(message(METADATA, 9, topics=[])).seconds < 1
            assert resident_kib(sluice.process_id) - before < KIB_MAX
            time.sleep(0.02)
    until(lambda: sluice.descriptors() <= descriptors_max, "its descriptors are closed")


def test_requests_are_not_kept_for_a_broker_that_reads_nothing(
    sluice: SluiceProcess, broker: ScriptedBroker, neighbour: Wire
) -> None:
    before = resident_kib(sluice.process_id)
    broker.script = only_for(b"victim", broken.never)
    with socket.create_connection(sluice.ports.address(1)) as client:
        client.settimeout(0.2)
        assert sent_until_blocked(client, produce(9, 1 << 20, client_id="victim", acks=1)) < GIB
        assert neighbour.ask(message(METADATA, 9, topics=[])).seconds < 1
        assert resident_kib(sluice.process_id) - before < KIB_MAX


def sent_until_blocked(client: socket.socket, whole: bytes) -> int:
    """Send a frame again and again until the other side takes no more for a while; give the bytes that it took."""
    sent = 0
    try:
        while sent < GIB:
            sent += client.send(whole[sent % len(whole) :])
    except TimeoutError:
        ...
    return sent


# On Sluice's own connections

OWN = {
    "negative length": broken.length_of(-1),
    "length zero": broken.length_of(0),
    "length below a header's": broken.length_of(3),
    "1 GiB announced": broken.for_ever(GIB),
    "goes on behind its end": broken.shorter_than_what_follows,
    "wrong correlation id": broken.wrong_correlation_id,
    "responds twice": broken.responds_twice,
    "closes in place of a response": broken.closes_first,
    "closes within a response": broken.closes_within(1000),
    "resets": broken.resets,
    "resets within a response": broken.resets_within,
    "an empty body": broken.says(b""),
    "filler": broken.says(filler(500)),
    "more brokers than there are": broken.says(broken.brokers_v1((2, HOST.encode(), 9), count=(1 << 31) - 1)),
    "a host that is not a string": broken.says(broken.brokers_v1((2, b"\xff\xfe\0\x80", 9092))),
    "fewer than no brokers": broken.says(broken.brokers_v1(count=-2)),
}
# Responses that are whole. Each host and number here is refused by something behind: the resolver, connect, a pack.
IMPOSSIBLE = (b"a..b", 64 * b"a", b"a\0b", 32_767 * b"a", b"", b".", b"[", b"%", b"::1%lo")
BELIEVED = {
    "no broker": broken.brokers_v1(),
    "20,000 brokers": broken.brokers_v1(*((node, b"127.0.0.2", 9) for node in range(20_000))),
    "impossible hosts": broken.brokers_v1(*((2 + at, host, 9092) for at, host in enumerate(IMPOSSIBLE))),
    "impossible ports": broken.brokers_v1(*((2 + at, b"127.0.0.2", port) for at, port in enumerate((0, -1, 1 << 30)))),
    "impossible brokers": broken.brokers_v1((-2, b"127.0.0.2", 9), ((1 << 31) - 1, b"127.0.0.2", 9)),
}  # fmt: skip
OWN_SILENT = {
    "never responds": broken.never,
    "stops within a response": broken.longer_than_what_follows,
    "half a length": lambda asked: (asked.say(b"\0\0"), asked.sleep())[1],
}  # each takes the 5 s that a broker is given


SCRIPTS = {**OWN, **OWN_SILENT, **{name: broken.says(body) for name, body in BELIEVED.items()}}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """What became of a process for each fault; some at a time, since they mostly wait."""
    with ThreadPoolExecutor(4) as pool:
        yield {fault: pool.submit(live_with, fault, tmp_path_factory.mktemp("own")) for fault in SCRIPTS}


@pytest.mark.parametrize("fault", SCRIPTS)
def test_process_lives_with_a_broker_that_responds_wrongly_to_sluices_questions(
    lived: dict[str, Future[None]], fault: str
) -> None:
    lived[fault].result()


def live_with(fault: str, directory: Path) -> None:
    """Start a process that meets the fault in its first responses, and assert that it serves afterwards."""
    with ScriptedBroker() as broker:
        broker.own_script = SCRIPTS[fault]
        sluice = SluiceProcess.configured(SluiceSettings(broker.address), directory)
        try:
            asked = 3 if fault in OWN else 1  # the others take 5 s a time
            until(lambda: broker.own_asked >= asked or not sluice.alive(), "it asks")
            broker.own_script = broken.honest
            if fault in BELIEVED:
                until(lambda: broker.own_asked > asked or not sluice.alive(), "it asks again")
            until(lambda: responds(sluice) or not sluice.alive(), "broker 1 is served")
            assert sluice.alive(), sluice.log()
            assert sluice.get("/healthz")[0] == 200
            assert resident_kib(sluice.process_id) < PROCESSES * RESIDENT_KIB_MAX
        finally:
            code = sluice.stop()
        assert code == 0, sluice.log()
