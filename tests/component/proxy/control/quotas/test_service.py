"""proxy.control.quotas.service: requests on the loop, responses later on the loop, one after another, bounded."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from kafka_client import quotas
from protocol.api import ALTER_CLIENT_QUOTAS
from protocol.errors import WireError
from protocol.header import body_start
from proxy.channel import PeerError, Question, SharedResponse
from proxy.channel.errors import REQUEST_BYTES_MAX
from proxy.config import QuotaSettings
from proxy.control.quotas import FileStore, QuotaService
from proxy.control.quotas import service as module
from proxy.control.quotas.responses import Response
from proxy.system.errors import ConfigError
from proxy.system.files import signature
from proxy.system.stats import Stats
from quotas.definitions.alterations import Alteration
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from tests.support.quota_frames import alter_request

ANN = Entity("ann")
RATE = "producer_byte_rate"
SECONDS_MAX = 20.0
Told = bytes | bytearray | SharedResponse | Exception


class Harness:
    """A service, and what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = QuotaSettings(file=path)
        self.store = FileStore(self.settings)
        self.stats = Stats()
        self.events: list[str] = []
        loop = asyncio.get_running_loop()
        altered = partial(self.events.append, "altered")
        self.service = QuotaService(loop, self.store, self.settings, self.stats, altered)

    async def ask(self, question: Question) -> Told:
        """Ask, and wait for the response."""
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

        def take(response: Told) -> None:
            self.events.append("responded")
            future.set_result(response)

        self.service.ask(question, take)
        assert not future.done(), "never at once"
        async with asyncio.timeout(SECONDS_MAX):
            return await future


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    path = tmp_path / "quotas.toml"
    path.write_text("")
    made = Harness(path)
    yield made
    made.service.close()


def alteration(rate: float | None, *, user: str = "ANONYMOUS", trusted: bool = True) -> Question:
    frame = alter_request(
        [([("user", "ann")], [(RATE, rate)])], validate_only=False, correlation_id=1, client_id="c"
    )
    start = body_start(frame, 0, len(frame), 49, 0)
    assert start is not None
    return Question(49, 0, 1, frame, start, user, trusted)


def code(response: Told) -> int:
    assert not isinstance(response, Exception), repr(response)
    ((_, found, _),) = quotas.alter([], validate_only=False).read(bytes(response))
    return found


async def test_altered_quotas_are_in_force_before_the_response(harness: Harness) -> None:
    assert code(await harness.ask(alteration(5.0))) == 0
    assert harness.events == ["altered", "responded"]
    assert harness.store.definitions.values(ANN) == {RATE: 5}
    assert harness.service.file_signature == signature(harness.path)
    assert harness.stats.quota_requests == {"altered": 1}


async def test_unchanged_quotas_notify_no_listener(harness: Harness) -> None:
    assert code(await harness.ask(alteration(None))) == 0
    assert code(await harness.ask(alteration(-1.0))) == 42
    assert harness.events == ["responded", "responded"]
    assert harness.stats.quota_requests == {"altered": 1, "refused": 1}


async def test_alterations_at_the_same_time_are_done_one_after_another(harness: Harness) -> None:
    responses = await asyncio.gather(*(harness.ask(alteration(float(rate))) for rate in range(1, 21)))
    assert {code(response) for response in responses} == {0}
    assert harness.store.definitions.values(ANN) == {RATE: 20}
    assert harness.path.read_text().count("[[quota]]") == 1


async def test_malformed_request_is_given_back_as_the_peers_error(harness: Harness) -> None:
    asked = alteration(5.0)
    cut, *others = await asyncio.gather(
        harness.ask(asked._replace(frame=asked.frame[:-1])), harness.ask(asked), harness.ask(asked)
    )
    assert isinstance(cut, WireError)
    assert [code(response) for response in others] == [0, 0], "the next ones are not held up"
    assert harness.stats.quota_requests == {"malformed": 1, "altered": 2}


async def test_unexpected_exception_ends_one_request(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(module, "handle_request", broken)
    assert isinstance(await harness.ask(alteration(5.0)), AssertionError)
    assert harness.stats.quota_requests == {"failed": 1}


async def test_permissions_change_with_the_settings(harness: Harness) -> None:
    asked = alteration(5.0, user="eve", trusted=False)
    assert code(await harness.ask(asked)) == 31
    await harness.service.read(QuotaSettings(file=harness.path, alter_principals=("eve",)))
    assert code(await harness.ask(asked)) == 0


async def test_file_is_read_again(harness: Harness) -> None:
    harness.path.write_text('[[quota]]\nip = "nowhere"\nconnection_creation_rate = 5\n')
    definitions, changed, idle = await harness.service.read(harness.settings)
    assert (len(definitions), changed) == (1, 1)
    assert ["nowhere" in one for one in idle] == [True]
    harness.path.write_text("[")
    with pytest.raises(ConfigError):
        await harness.service.read(harness.settings)
    assert len(definitions) == 1


async def test_closed_service_responds_to_no_waiting_request(harness: Harness) -> None:
    responses: list[object] = []
    for _ in range(5):
        harness.service.ask(alteration(5.0), responses.append)
    harness.service.close()
    await asyncio.sleep(0.1)
    assert len(responses) <= 1, "at most the one that was begun"


class Busy:
    """Holds the service's thread at its first request until `go`; what the thread does is in `order`."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = harness.service
        self.order: list[str] = []
        self.dropped: list[str] = []
        self.begun = Event()
        self._go = Event()
        self._asked = 0
        self._told = asyncio.Event()
        monkeypatch.setattr(module, "handle_request", self._respond)
        self.ask("the first")
        assert self.begun.wait(SECONDS_MAX)

    def ask(self, name: str, address: str = "192.0.2.1", size: int = 1) -> Callable[[], None]:
        """Ask; `name` is in the place of the user."""
        self._asked += 1

        def take(response: Told) -> None:
            if isinstance(response, PeerError):
                assert response.cause == "quota_requests_max"
                self.dropped.append(name)
            self.told()

        return self.service.ask(Question(49, 0, 1, bytes(size), 0, name, False, address=address), take)

    def told(self) -> None:
        """A request has its response, or never will have one."""
        self._asked -= 1
        if not self._asked:
            self._told.set()

    async def all(self) -> list[str]:
        """Let the thread go on, wait until all have responses, and return the order."""
        self._go.set()
        async with asyncio.timeout(SECONDS_MAX):
            await self._told.wait()
        return self.order

    def _respond(self, *arguments: object) -> Response:
        question = arguments[2]
        assert isinstance(question, Question)
        if question.user == "the first":
            self.begun.set()
            assert self._go.wait(SECONDS_MAX)
        self.order.append(question.user)
        return Response(bytearray(), "described")


@pytest.fixture
def busy(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Busy:
    return Busy(harness, monkeypatch)


async def test_entry_begins_at_its_time_and_the_process_is_told(harness: Harness) -> None:
    told: asyncio.Queue[float | None] = asyncio.Queue()
    definitions = harness.store.definitions
    service = QuotaService(
        asyncio.get_running_loop(),
        harness.store,
        harness.settings,
        harness.stats,
        lambda: told.put_nowait(definitions.limit(RATE, "ann", "a")[0]),
    )
    times = asyncio.create_task(service.keep_times())
    when = f"from={datetime.now(UTC) + timedelta(seconds=3):%Y-%m-%dT%H:%M:%SZ}"  # it waits for the next change now
    entity: Alteration = [("user", "ann"), ("when", when)], [(RATE, 7.0)]
    assert await service.change(lambda: bool(harness.store.alter([entity], validate_only=False).changes))
    async with asyncio.timeout(SECONDS_MAX):
        while await told.get() != 7:
            pass
    assert f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" >= when.removeprefix("from=")
    times.cancel()
    service.close()


async def test_file_and_mirror_go_ahead_of_clients_requests(
    harness: Harness, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_settings: QuotaSettings) -> Definitions:
        busy.order.append("the file")
        return harness.store.definitions

    def mirror(_entries: object) -> bool:
        busy.order.append("the mirror")
        return False

    monkeypatch.setattr(harness.store, "read", read)
    monkeypatch.setattr(harness.store, "mirror", mirror)
    for number in range(3):
        busy.ask(f"client {number}")
    reading = asyncio.create_task(harness.service.read(harness.settings))
    mirroring = asyncio.create_task(harness.service.change(harness.store.mirror, ()))
    await asyncio.sleep(0)
    assert await busy.all() == ["the first", "the file", "the mirror", "client 0", "client 1", "client 2"]
    await reading
    assert not await mirroring


async def test_one_address_has_an_eighth_of_all_places(busy: Busy) -> None:
    for number in range(125):  # 8 MiB // (64 MiB // 1000)
        busy.ask(f"a{number}", "192.0.2.1")
    busy.ask("one more", "192.0.2.1")
    busy.ask("b0", "192.0.2.2")
    order = await busy.all()
    assert busy.dropped == ["one more"]
    assert len(order) == 1 + 125 + 1
    assert order.index("b0") == 2


async def test_address_with_most_requests_gives_way_in_a_full_queue(busy: Busy) -> None:
    for number in range(1000):
        busy.ask(f"{number}", f"192.0.2.{number // 100}")
    busy.ask("another", "198.51.100.1")
    order = await busy.all()
    assert busy.dropped == ["99"]  # the newest of the first of ten addresses with 100 each
    assert "another" in order


async def test_two_of_the_largest_requests_of_an_address_may_wait(busy: Busy) -> None:
    largest = REQUEST_BYTES_MAX[ALTER_CLIENT_QUOTAS]
    for number in range(3):
        busy.ask(f"{number}", size=largest)
    await busy.all()
    assert (busy.order, busy.dropped) == (["the first", "0", "1"], ["2"])


async def test_withdrawn_request_is_not_begun(busy: Busy) -> None:
    taken_back = [busy.ask(f"a{number}") for number in range(125)]
    for withdraw in taken_back:
        withdraw()
        withdraw()
        busy.told()
    busy.ask("b0")
    assert await busy.all() == ["the first", "b0"]
    assert not busy.dropped
