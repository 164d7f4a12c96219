"""Figures of several processes: what a worker sends and gives up, and what control makes of those that respond."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from proxy.admin import NoWorkersError
from proxy.admin.clients import ClientTable
from proxy.explain.documents import Missing
from proxy.explain.parts import MINUTE
from proxy.explain.report import NOTHING, Query, Seen
from proxy.metrics.exposition import Metrics
from proxy.metrics.families import Family, of_workers
from proxy.process.figures import MergedFigures, Responses, WorkerFigures
from proxy.process.messages import Counted, Figures, Look, Looked, Message, Scrape
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.options import EngineOptions

ALL = Query(MINUTE)
ONE = Query(MINUTE, ("ann", "a"))
LATE = (Missing(2, "no response within 4 s"),)
NONE = (Missing(1, "silent for 3 s"), Missing(2, "it does not run"))


def merged(by_run: dict[int, list[Figures]], missing: tuple[Missing, ...]) -> MergedFigures:
    engine = Engine(EngineOptions(), Definitions())

    async def scrape(request: Callable[[int], Message]) -> Responses:
        request(1)
        return Responses(by_run, missing)

    async def followers(_: Query) -> Seen:
        return NOTHING

    def families() -> Iterable[Family]:
        up = dict.fromkeys((1, 2), True) | {one.worker: False for one in figures.missing_in_metrics}
        return of_workers(up, {}, {}, {})

    metrics = Metrics(Stats(), engine, 1000, "1", others=[families])
    figures = MergedFigures(scrape, lambda: missing, metrics, engine, 1000, followers)
    return figures


async def test_what_lacks_a_worker_says_which() -> None:
    assert (await merged({7: [Looked(1, NOTHING)]}, LATE).seen(ALL)).missing == LATE
    table = await merged({7: [Counted(1, ClientTable().part())]}, LATE).clients()
    assert b"worker 2 is missing (no response within 4 s)" in table.text(True).body
    assert merged({7: [Looked(1, NOTHING)]}, LATE).missing == LATE


async def test_nothing_is_made_of_no_response() -> None:
    figures = merged({}, NONE)
    with pytest.raises(NoWorkersError) as caught:
        await figures.seen(ALL)
    assert caught.value.missing == NONE
    with pytest.raises(NoWorkersError):
        await figures.clients()


async def test_metrics_of_control_are_there_without_any_worker() -> None:
    render = await merged({}, NONE).metrics()
    text = render("")[0].decode()
    assert 'sluice_worker_up{worker="1"} 0.0' in text
    assert 'sluice_worker_up{worker="2"} 0.0' in text


class Worker:
    """A worker whose list of clients takes as long as the test wants."""

    def __init__(self) -> None:
        self.sent: list[Figures] = []
        self.go_on = asyncio.Event()
        self.looks = 0
        engine = Engine(EngineOptions(), Definitions())
        self.figures = WorkerFigures(Stats(), engine, 1000, self._send, self._seen)

    async def _send(self, message: Message) -> bool:
        assert isinstance(message, Figures)
        if isinstance(message, Counted):
            await self.go_on.wait()
        self.sent.append(message)
        return True

    async def _seen(self, query: Query) -> AsyncIterator[Seen]:
        self.looks += 1
        if query.of_all:
            yield Seen((), {}, ())
            await self.go_on.wait()
        yield Seen((), {}, ())

    def ask(self, number: int, query: Query) -> asyncio.Task[None]:
        return asyncio.create_task(self.figures.send(Look(number, query)))

    @property
    def responded(self) -> list[int]:
        return [one.number for one in self.sent if not (isinstance(one, Looked) and one.more)]


async def test_question_about_one_client_does_not_wait_for_a_list() -> None:
    worker = Worker()
    asked = worker.ask(1, ALL)
    await asyncio.sleep(0)
    await worker.ask(2, ONE)
    await worker.ask(3, Query(MINUTE, client_id="a"))
    await worker.ask(4, Query(MINUTE, brokers_only=True))
    assert worker.responded == [2, 3, 4]
    worker.go_on.set()
    await asked
    assert worker.responded == [2, 3, 4, 1]


async def test_list_that_control_has_given_up_is_not_made_to_its_end() -> None:
    worker = Worker()
    asked = [worker.ask(number, ALL) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    worker.go_on.set()
    await asyncio.gather(*asked)
    assert worker.responded == [3]


async def test_scrape_that_control_has_given_up_is_not_begun() -> None:
    worker = Worker()
    asked = [asyncio.create_task(worker.figures.send(Scrape(number, "clients"))) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    worker.go_on.set()
    await asyncio.gather(*asked)
    assert worker.responded == [1, 3]
