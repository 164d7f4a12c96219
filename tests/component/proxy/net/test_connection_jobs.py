"""A connection whose large frames are read beside the loop: in order, once, and not for a closed one."""

from collections.abc import Callable

from protocol.api import FIND_COORDINATOR
from protocol.messages import addresses
from proxy.channel.direction import AT_ONCE_BYTES_MAX
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import End, Rig, until
from tests.support.frames import LIST_OFFSETS, frame, request, some_response
from tests.support.mutation_frames import create
from tests.support.playbook import gateway_address

VERSION = 4
ASKED = request(FIND_COORDINATOR, VERSION, correlation_id=1)
PLAIN = request(LIST_OFFSETS, 7, size=100, correlation_id=2)
PLAIN_RESPONSE = some_response(50, correlation_id=2)


def coordinators(count: int) -> bytes:
    """A response that names broker 3 for so many groups."""
    # Key "g", node 3, host "b", port 9, no error, no message, no tags.
    one = b"\x02g" + b"\0\0\0\3" + b"\x02b" + b"\0\0\0\x09" + b"\0\0" + b"\0" + b"\0"
    size = (count + 1) & 0x7F | 0x80, (count + 1) >> 7
    return frame(b"\0\0\0\1" + b"\0" + bytes(4) + bytes(size) + one * count + b"\0")


LARGE = coordinators(2000)
REWRITTEN = addresses.rewrite_find_coordinator(LARGE, VERSION, gateway_address)


class SlowWorker:
    """Keeps jobs until the test has them run."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Callable[[], None], Callable[[bool], None]]] = []
        self.withdrawn = 0

    def submit(
        self, whose: str, size: int, run: Callable[[], None], done: Callable[[bool], None]
    ) -> Callable[[], None]:
        assert size > AT_ONCE_BYTES_MAX
        self.jobs.append((whose, run, done))
        return self._withdraw

    def _withdraw(self) -> None:
        self.withdrawn += 1

    def close(self) -> None:
        self.jobs.clear()


def with_worker(rig: Rig) -> SlowWorker:
    """Put a slow worker in the thread's place."""
    rig.shared.worker.close()
    worker = SlowWorker()
    rig.shared.worker = worker  # type: ignore[assignment]
    return worker


async def reading(rig: Rig) -> tuple[End, End, SlowWorker]:
    """A client, its broker, whose large response a slow worker has got, and the worker."""
    worker = with_worker(rig)
    client, broker = await rig.joined(ASKED + PLAIN, gateway=True)
    await broker.send(LARGE)
    await until(lambda: len(worker.jobs) == 1, "a job is given")
    return client, broker, worker


async def test_large_response_is_rewritten_and_the_next_one_follows(rig: Rig) -> None:
    assert len(LARGE) > AT_ONCE_BYTES_MAX
    client, broker = await rig.joined(ASKED + PLAIN, gateway=True)
    await broker.send(LARGE + PLAIN_RESPONSE)
    assert await client.receive(len(REWRITTEN + PLAIN_RESPONSE)) == REWRITTEN + PLAIN_RESPONSE


async def test_nothing_is_read_while_a_frame_is_being_read(rig: Rig) -> None:
    client, broker, worker = await reading(rig)
    assert rig.connection.responses.paused
    await broker.send(PLAIN_RESPONSE)
    rig.connection.responses.show_kept()  # whatever else makes it look again
    ((whose, run, done),) = worker.jobs
    assert whose == "192.0.2.1"  # as what it keeps is counted
    run()
    done(True)
    assert await client.receive(len(REWRITTEN + PLAIN_RESPONSE)) == REWRITTEN + PLAIN_RESPONSE
    assert len(worker.jobs) == 1
    rig.connection.close("client_closed")
    assert worker.withdrawn == 0


async def test_job_of_a_connection_that_has_ended_changes_nothing(rig: Rig) -> None:
    client, _, worker = await reading(rig)
    client.reset()
    await until(lambda: not rig.connections, "the connection ends")
    assert worker.withdrawn == 1
    ((_, run, done),) = worker.jobs  # it may have begun before
    run()
    done(True)
    assert rig.stats.errors["internal"] == 0


async def test_job_that_finds_no_room_ends_its_connection(rig: Rig) -> None:
    client, _, worker = await reading(rig)
    ((_, _, done),) = worker.jobs
    done(False)
    assert await client.rest() == b""
    assert rig.stats.errors["parser_overload"] == 1


async def test_request_that_is_looked_at_again_meanwhile_passes_in_the_end(rig: Rig) -> None:
    rig.engine = Engine(
        EngineOptions(), Definitions({Entity(client_id=DEFAULT): {"controller_mutation_rate": 1e6}})
    )
    worker = with_worker(rig)
    client = rig.connect()
    asked = create(7, {f"t{index}": 1 for index in range(2000)})
    assert len(asked) > AT_ONCE_BYTES_MAX
    await client.send(asked)
    await until(lambda: len(worker.jobs) == 1, "a job is given")
    rig.connection.requests.show_kept()  # whatever makes it look again
    ((_, run, done),) = worker.jobs
    run()
    done(True)
    broker = await rig.accept()
    assert await broker.receive(len(asked)) == asked
