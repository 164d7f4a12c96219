"""What happens to a fleet under load, one fault after the other, and what clients got meanwhile.

2 members x 2 workers, one quota for each direction, more demand than it allows. One run has all faults, so the bound is
looked at over intervals that hold several of them.
"""

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench.clients import CLIENTS_MAX, complaints, fill, read_notes
from tests.bench.figures import Event
from tests.bench.fleet.bound import Life
from tests.bench.fleet.rig import Rig, rig
from tests.bench.process import Child, module_process
from tests.support.numbered import read_all

MEMBERS: Final = 2
WORKERS: Final = 2
CONNECTIONS: Final = {"produce": 24, "consume": 12}
RECORD_BYTES: Final = 50_000
"""One in each request: small beside a quota's second, so that a rate shows, and what a process may add is small."""
_FILL_RECORD_BYTES: Final = 10_000
_BURST_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.25
_BACK_SECONDS: Final = 5.0
_PAUSED_SECONDS: Final = 10.0
_KILLS: Final = 12
_KILL_EVERY_SECONDS: Final = 5.0
_READ_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Args:
        label: for the table.
        act: does it; yields for how long to wait.
        seconds: how much of it is measured; 0: all until the next one.
    """

    name: str
    label: str
    act: Callable[[Rig], Iterator[float]]
    seconds: float = 0.0


@dataclass(slots=True)
class Direction:
    """What passed in one direction; times are in seconds of the run.

    Attributes:
        let_through: when the first byte passed, when the last, and the size.
        notes: what clients got: time, client, number, bytes.
        seen: what clients complained about.
        lost: the notes whose records are not at the broker.
        repeated: how many records are there twice.
    """

    let_through: list[tuple[float, float, int]] = field(default_factory=list)
    notes: list[tuple[float, int, int, int]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    lost: list[tuple[float, int, int, int]] = field(default_factory=list)
    repeated: int = 0

    @property
    def passed(self) -> list[Event]:
        """Return when the last byte of each request or response passed, and its size."""
        return [(last, size) for _, last, size in self.let_through]


@dataclass(slots=True)
class Played:
    """A run.

    Attributes:
        marks: each fault, when it began, and when the next did.
    """

    marks: list[tuple[Fault, float, float]] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    directions: dict[str, Direction] = field(default_factory=dict)


def _none(_: Rig) -> Iterator[float]:
    yield 20.0


def _worker(rig: Rig) -> Iterator[float]:
    rig.other().kill_worker(0)
    yield 15.0


def _workers(rig: Rig) -> Iterator[float]:
    for number in range(_KILLS):
        rig.members[number % MEMBERS].kill_worker(number // MEMBERS)
        yield _KILL_EVERY_SECONDS
    yield 10.0


def _member(rig: Rig) -> Iterator[float]:
    member = rig.other()
    member.kill()
    yield _BACK_SECONDS
    member.start()
    yield 35.0


def _holder(rig: Rig) -> Iterator[float]:
    holder = rig.holder()
    os.kill(holder.running.process_id, signal.SIGKILL)
    yield _BACK_SECONDS
    holder.start()
    yield 45.0


def suspended(rig: Rig, seconds: float, after: float, *, workers: bool) -> Iterator[float]:
    """Stop the holder's control process, or all of its processes, for some seconds; then wait as told."""
    holder = rig.holder()
    holder.signal(signal.SIGSTOP, workers=workers)
    yield seconds
    holder.signal(signal.SIGCONT, workers=workers)
    yield after


def _coordinator(rig: Rig) -> Iterator[float]:
    rig.cluster.kill_broker(rig.coordinator)
    yield 40.0


FAULTS: Final = (
    Fault("none", "none", _none),
    Fault("worker", "a worker is killed", _worker),
    Fault("workers", f"a worker is killed every {_KILL_EVERY_SECONDS:g} s, {_KILLS} times", _workers),
    Fault("member", f"a member is killed, and starts again after {_BACK_SECONDS:g} s", _member),
    Fault(
        "holder",
        f"the holder's control process is killed, and starts again after {_BACK_SECONDS:g} s",
        _holder,
    ),
    Fault(
        *("pause", f"the holder's control process is stopped for {_PAUSED_SECONDS:g} s"),
        partial(suspended, seconds=_PAUSED_SECONDS, after=35.0, workers=False),
    ),
    Fault(
        *("suspend", f"the holder and its workers are stopped for {_PAUSED_SECONDS:g} s"),
        partial(suspended, seconds=_PAUSED_SECONDS, after=35.0, workers=True),
    ),
    Fault("coordinator", "the broker that coordinates the holder's group is killed", _coordinator),
)


def play(faults: Sequence[Fault], quota: int, console: Console) -> Played:
    """Play the faults in their order, under policy `schedule`."""
    played = Played()
    rates = {"producer_byte_rate": quota, "consumer_byte_rate": quota}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-faults-") as name,
        rig(Path(name), members=MEMBERS, workers=WORKERS, client_quotas={"<default>": rates}) as running,
    ):
        running.settle()
        console.print(f"settled; records on broker {running.data_node}, coordinator {running.coordinator}")
        for direction in CONNECTIONS:
            running.create_topic(direction, copies=2 if direction == "produce" else 1)
        # What a consumer reads that has all of the other member's part too, and as much again; in batches that are no
        # larger than what it asks for.
        batches = {"acks": 1, "batch.num.messages": RECORD_BYTES // _FILL_RECORD_BYTES - 1}
        bootstrap = running.cluster.bootstrap()
        fill(bootstrap, "consume", 60 * quota // _FILL_RECORD_BYTES, _FILL_RECORD_BYTES, config=batches)
        with _clients(running) as children:
            began = _perform(running, faults, played, children, console)
            for direction, clients in children.items():
                played.directions[direction] = _collect(running, direction, clients, began)
        played.lives = [(born - began, died - began) for born, died in running.lives()]
        _compare(running, played.directions["produce"])
    return played


@contextmanager
def _clients(running: Rig) -> Iterator[Mapping[str, Sequence[Child]]]:
    """Start the clients of both directions, half of each at each member; they are connected, and wait."""
    children: dict[str, list[Child]] = {}
    with ExitStack() as stack:
        for direction, connections in CONNECTIONS.items():
            each = connections // MEMBERS
            for number, member in enumerate(running.members):
                bootstrap = member.running.bootstrap
                words: list[object] = [direction, "--topic", direction, "--bootstrap", bootstrap]
                words += ["--client-id", direction, "--connections", each, "--first", number * each]
                words += ["--bytes", RECORD_BYTES, "--notes", _notes(running, direction, number)]
                log = running.directory / f"{direction}-{number}.log"
                child = stack.enter_context(module_process("tests.bench.clients", *words, log=log))
                children.setdefault(direction, []).append(child)
        yield children


def _notes(running: Rig, direction: str, number: int) -> Path:
    return running.directory / f"{direction}-{number}.notes"


def _perform(
    running: Rig,
    faults: Sequence[Fault],
    played: Played,
    children: Mapping[str, Sequence[Child]],
    console: Console,
) -> float:
    """Let the clients go, play all faults, and return when they began."""
    running.look()
    began = time.monotonic()
    for clients in children.values():
        for child in clients:
            child.say("go")
    _wait(running, _BURST_SECONDS)
    for fault in faults:
        at = time.monotonic() - began
        console.print(f"{at:6.1f} s: {fault.label}")
        for seconds in fault.act(running):
            _wait(running, seconds)
        played.marks.append((fault, at, time.monotonic() - began))
    return began


def _wait(running: Rig, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        running.look()
        time.sleep(_TICK_SECONDS)


def _collect(running: Rig, direction: str, clients: Sequence[Child], began: float) -> Direction:
    """End the clients of a direction, and take what they and the relays noted."""
    found = Direction(seen=complaints(clients))
    for number in range(len(clients)):
        for at, client, record, size in read_notes(_notes(running, direction, number)):
            found.notes.append((at - began, client, record, size))
    events = running.events(direction)
    found.let_through = [(first - began, last - began, size) for first, last, size in events]
    return found


def _compare(running: Rig, found: Direction) -> None:
    """Read all records at the broker, and compare them with what was acknowledged."""
    values = read_all(running.cluster.bootstrap(), "produce", seconds=_READ_SECONDS)
    there = Counter(int.from_bytes(value[:8]) for value in values)
    found.lost = [note for note in found.notes if not there[note[2] * CLIENTS_MAX + note[1]]]
    found.repeated = sum(count - 1 for count in there.values())
