"""Ways to get more of a capacity than one's part, beside a neighbour with a promised rate that wants more as well.

A capacity of 8 MB/s: the neighbour is promised 4, each attacker of a name in the quotas file 1, all of weight 1 and up
to the capacity. Of the 3 that are left each has a half. Names without an entry are one class, which is promised
nothing: it has half of the 4 that the neighbour leaves.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quotas.definitions.classes import NEWCOMERS_BURST_SECONDS, UNPROMISED_PART
from tests.bench.process import module_process
from tests.hostile import wire
from tests.hostile.attacks.evasions import (
    MEGABYTE,
    Run,
    asks,
    asks_in_turn,
    asks_next,
    asks_once,
    connections,
    produce,
    sends_and_resets,
)
from tests.hostile.scene import BUCKETS_A_SECOND, Scene, Stage, staged, swarm
from tests.hostile.wire import Client

CAPACITY: Final = 8 * MEGABYTE
PROMISED: Final = 4 * MEGABYTE
_ATTACKER: Final = MEGABYTE
_BURST_SECONDS: Final = 1.0
_NEIGHBOUR: Final = "neighbour"
_NEIGHBOUR_CONNECTIONS: Final = 8
_NEIGHBOUR_BYTES: Final = 100_000
# Before an attack: the neighbour has borrowed all that is left, as far as others have returned it.
_ALONE_SECONDS: Final = 2.0
_PART: Final = _ATTACKER + (CAPACITY - PROMISED - _ATTACKER) / 2
_UNPROMISED: Final = (CAPACITY - PROMISED) / 2
_CONNECTIONS: Final = 8
_CLAIMS: Final = 60
_NAMES: Final = 200
_NAMES_IN_TURN: Final = 40
_NAMES_AT_A_TIME: Final = 50
_LARGEST: Final = 16 * 1024 * 1024
_SMALL_FIRST: Final = 30  # that many defaults, and the neighbour's rate, are less than the capacity
_USED_SECONDS: Final = 3.0  # of a loan, before its user stops


def _terms(part: str, name: str, rate: int) -> str:
    limits = f"producer_byte_rate = {rate}\nproducer_byte_rate_ceiling = {CAPACITY}\n"
    return f'[[quota]]\n{part} = "{name}"\n{limits}'


@dataclass(frozen=True, slots=True)
class Borrowing:
    """One way to get more.

    Args:
        name: of the test, and of the client id or ids that it uses.
        what: the row of the table.
        run: does it until a moment.
        part: what is the attacker's, in bytes/s.
        request_bytes: the largest request.
    """

    name: str
    what: str
    run: Run
    part: float = _PART
    request_bytes: int = MEGABYTE + 500


@dataclass(frozen=True, slots=True)
class Found:
    """What an attack brought, in bytes of `seconds`; `capacity` is of all clients."""

    borrowing: Borrowing
    seconds: float
    neighbour: int
    attacker: int
    failed: str = ""

    @property
    def figures(self) -> tuple[float, float, float]:
        """The part of its rate that the neighbour lacks, what the attacker had of its part, and all of the capacity."""
        return (
            max(0.0, 1 - self.neighbour / (PROMISED * self.seconds)),
            self.attacker / (self.borrowing.part * self.seconds),
            (self.neighbour + self.attacker) / (CAPACITY * self.seconds),
        )

    @property
    def bars(self) -> tuple[float, float, float]:
        """The most that each of these may be."""
        part, size = self.borrowing.part, self.borrowing.request_bytes
        return (
            0.05,
            1.02 + _BURST_SECONDS / self.seconds + size / (part * self.seconds),
            1.02 + _BURST_SECONDS / self.seconds + size / (CAPACITY * self.seconds),
        )


def claims(client: Client, request: bytes) -> None:
    """Send a request that has to wait, and be gone before its time has come."""
    client.send(request)
    time.sleep(0.2)
    client.reset()


def pipelines(client: Client, request: bytes) -> None:
    """Ten requests before the first response."""
    client.send(request * 10)
    while True:
        client.skip()
        client.send(request)


def stops_half_way(client: Client, request: bytes) -> None:
    """Use a loan for some seconds, then stop in the middle of a request."""
    end = time.monotonic() + _USED_SECONDS
    while time.monotonic() < end:
        asks_once(client, request)
    client.send(request[: len(request) // 2])
    client.skip()


def in_turn(count: int) -> Callable[[str], list[bytes]]:
    """Requests of so many names."""
    return lambda name: [wire.produce(f"{name}/{index}", bytes(50_000)) for index in range(count)]


def always_new(name: str) -> Iterator[bytes]:
    """Requests each of which has a name of its own."""

    def request(number: int) -> bytes:
        return wire.produce(f"{name}/{number}", bytes(MEGABYTE))

    return map(request, itertools.count())


def small_first(name: str) -> Iterator[tuple[bytes, bytes]]:
    """Two requests of a name each: a few bytes, and as much as a request may have."""

    def requests(number: int) -> tuple[bytes, bytes]:
        own = f"{name}/{number}"
        return wire.produce(own, bytes(100)), wire.produce(own, bytes(_LARGEST))

    return map(requests, itertools.count())


def asks_small_first(client: Client, requests: Iterator[tuple[bytes, bytes]]) -> None:
    """Be known by a small request, and then send a large one."""
    small, large = next(requests)
    asks_once(client, small)
    time.sleep(0.2)
    asks_once(client, large)


def at_once(count: int) -> Run:
    """Connections of a name each."""

    def run(scene: Scene, name: str, until: float) -> None:
        def once(index: int) -> None:
            with scene.connected(until) as client:
                asks(client, wire.produce(f"{name}/{index}", bytes(50_000)))

        swarm(count, until, once)

    return run


def many_in_turn(scene: Scene, name: str, until: float) -> None:
    """Connections with names of their own each, which they use in turn."""

    def once(index: int) -> None:
        with scene.connected(until) as client:
            asks_in_turn(client, in_turn(_NAMES_IN_TURN)(f"{name}/{index}"))

    swarm(_NAMES_AT_A_TIME, until, once)


_MANY: Final = _NAMES_AT_A_TIME * _NAMES_IN_TURN
BORROWINGS: Final = (
    Borrowing(
        "b-stays",
        "8 connections, 1 MB a request (for comparison)",
        connections(_CONNECTIONS, produce(), asks),
    ),
    Borrowing(
        "b-claims",
        "60 connections wait, and are gone before their time",
        connections(_CLAIMS, produce(), claims),
    ),
    Borrowing(
        "b-reconnects", "a new connection for each request", connections(_CONNECTIONS, produce(), asks_once)
    ),
    Borrowing(
        "b-mid-frame",
        "1 MB, reset 1 kB before its end",
        connections(_CONNECTIONS, lambda name: produce()(name)[:-1000], sends_and_resets),
    ),
    Borrowing(
        "b-group",
        f"{_NAMES_IN_TURN} client ids of a group in turn, on 8 connections",
        connections(_CONNECTIONS, in_turn(_NAMES_IN_TURN), asks_in_turn),
        request_bytes=51_000,
    ),
    Borrowing(
        "b-pipelined", "10 × 1 MB pipelined on each of 4 connections", connections(4, produce(), pipelines)
    ),
    Borrowing(
        "b-largest",
        "requests of 16 MiB on 4 connections",
        connections(4, produce(_LARGEST), asks),
        request_bytes=_LARGEST + 500,
    ),
    Borrowing(
        "b-half",
        "8 connections use a loan, then stop in the middle of a request",
        connections(_CONNECTIONS, produce(200_000), stops_half_way),
        request_bytes=201_000,
    ),
    Borrowing(
        "b-names", f"{_NAMES} client ids without an entry at once", at_once(_NAMES), _UNPROMISED, 51_000
    ),
    Borrowing(
        "b-names-in-turn",
        f"{_MANY:,} client ids without an entry in turn, on {_NAMES_AT_A_TIME} connections",
        many_in_turn,
        _UNPROMISED,
        51_000,
    ),
    Borrowing(
        "b-new",
        "a new client id without an entry for each request of 1 MB",
        connections(_CONNECTIONS, always_new, asks_next),
        _UNPROMISED,
    ),
    Borrowing(
        "b-first",
        "a new client id below a default for each request of 1 MB",
        connections(_CONNECTIONS, always_new, asks_next),
        _UNPROMISED,
        # What all new names together may send at once.
        MEGABYTE + 500 + int(CAPACITY * UNPROMISED_PART * NEWCOMERS_BURST_SECONDS),
    ),
    Borrowing(
        "b-small-first",
        f"{_SMALL_FIRST} connections: a new client id below a default, 100 bytes, then 16 MiB",
        connections(_SMALL_FIRST, small_first, asks_small_first),
        _UNPROMISED,
        _LARGEST + 500 + int(CAPACITY * UNPROMISED_PART * NEWCOMERS_BURST_SECONDS),
    ),
)


def _quotas() -> str:
    """Return the quotas file: those that have no entry are what their attacks are about."""
    own = (each.name for each in BORROWINGS if each.part == _PART and each.name != "b-group")
    group = '[[group]]\nname = "crowd"\nclient_ids = ["b-group/*"]\n'
    each = '[[group]]\nname = "each"\nclient_ids = ["b-first/*", "b-small-first/*"]\nbudget = "each"\n'
    return "".join(
        (
            f'[[capacity]]\nscope = "broker"\nin = {CAPACITY}\n',
            _terms("client_id", _NEIGHBOUR, PROMISED),
            *(_terms("client_id", name, _ATTACKER) for name in own),
            group,
            _terms("group", "crowd", _ATTACKER),
            each,
            _terms("group", "each", _ATTACKER // 10),
        )
    )


def measure(borrowings: Iterable[Borrowing], seconds: float) -> Iterator[Found]:
    """Do them one after the other beside the neighbour."""
    with ExitStack() as stack:
        stage = Stage(quota_file=_quotas(), client_quotas={})
        scene = stack.enter_context(staged(stage))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="borrowing-")))
        words = (scene.address[1], _NEIGHBOUR, _NEIGHBOUR_CONNECTIONS, _NEIGHBOUR_BYTES)
        log = directory / "neighbour.log"
        stack.enter_context(module_process("tests.hostile.neighbour", *words, log=log))
        for each in borrowings:
            time.sleep(_ALONE_SECONDS)
            yield _attack(scene, each, seconds)


def _attack(scene: Scene, borrowing: Borrowing, seconds: float) -> Found:
    failed = ""
    began = time.monotonic()
    until = began + seconds
    try:
        borrowing.run(scene, borrowing.name, until)
    except TimeoutError:
        pass
    except OSError as error:
        failed = f"{type(error).__name__}: {error}"
    time.sleep(max(0.0, until - time.monotonic()))

    def passed(client_id: str) -> int:
        buckets = range(int(began * BUCKETS_A_SECOND), int(until * BUCKETS_A_SECOND))
        counted = scene.broker.counted("produce", client_id)
        return sum(counted.get(bucket, 0) for bucket in buckets)

    return Found(borrowing, seconds, passed(_NEIGHBOUR), passed(borrowing.name), failed)
