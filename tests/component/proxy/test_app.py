"""What the composition root does when a part of it fails; everything else it does is seen in tests/integration."""

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from proxy.app import App
from proxy.config import Address, Config, FleetOptions
from proxy.config.options import AdminOptions, ClusterOptions, ListenerOptions
from proxy.control.quotas import FileStore
from proxy.fleet.port import HolderPort
from proxy.fleet.secret import NO_SECRET
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from proxy.system.errors import StartError
from quotas.sharing.lease_values import LeaseTerms
from quotas.sharing.lessor import Lessor
from tests.cluster import HOST, free_ports
from tests.component.proxy.control.cluster.test_poller import metadata
from tests.support.loop_broker import broker

NO_FLEET = FleetOptions()


@pytest.fixture(autouse=True)
async def _signals_of_the_test_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda *_: None)


def app(upstreams: Mapping[int, Address] = MappingProxyType({}), fleet: FleetOptions = NO_FLEET) -> App:
    """A gateway or a sidecar without an admin port, in front of a cluster that is not there."""
    first = free_ports(4)[0]
    listener = ListenerOptions(
        bind=HOST,
        advertised_host=HOST,
        bootstrap_port=first,
        first_broker_port=first + 1,
        advertised_first_broker_port=first + 1,
        broker_id_max=1,
        upstreams=upstreams,
    )
    config = Config(
        cluster=ClusterOptions((Address(HOST, first + 3),)),
        listeners=(listener,),
        admin=AdminOptions(None),
        fleet=fleet,
    )
    return App(config, FileStore(config.quotas), asyncio.get_running_loop())


async def served(made: App) -> App:
    async with asyncio.timeout(20):
        await made.serve()
    return made


async def fail() -> None:
    raise RuntimeError("a bug")


async def test_process_whose_task_fails_serves_on(caplog: pytest.LogCaptureFixture) -> None:
    made = app()
    made.poller.run = fail  # type: ignore[method-assign]  # the bug
    made.poller.poll = fail  # type: ignore[assignment, method-assign]  # it is asked once before the ports are bound

    async def stop_after_failures() -> None:
        # Once at the start, then at 0, 0.1 and 0.3 s.
        while made.stats.task_failures["poller"] < 4:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        made.stop()

    with caplog.at_level(logging.ERROR):
        await asyncio.gather(served(made), stop_after_failures())
    assert made.stats.task_failures.keys() == {"poller"}
    assert [record.message for record in caplog.records] == ["a background task failed"]


async def test_sidecar_whose_broker_advertises_itself_does_not_start() -> None:
    async with broker(metadata((1, "127.0.0.1", 29392))) as upstream:
        with pytest.raises(StartError, match=r"broker 1 .* advertises 127\.0\.0\.1:29392"):
            await served(app(upstreams={1: upstream}))


async def test_sidecar_whose_broker_turns_out_to_advertise_itself_or_that_stops_is_not_ready() -> None:
    made = app(upstreams={1: Address(HOST, free_ports(1)[0])})
    made.poller.problem = ""
    made.advertised[0].problem = "broker 1 advertises itself"
    assert made.not_ready() == "broker 1 advertises itself"
    made.stop()
    assert made.not_ready() == "draining"


async def test_process_without_a_cluster_is_not_ready() -> None:
    made = app()
    asyncio.get_running_loop().call_later(0.1, made.stop)
    await served(made)
    assert "unreachable" in made.poller.problem


async def test_switch_turns_enforcement_off_and_on() -> None:
    made = app()
    seen = []
    for _ in range(2):
        made.toggle_enforcement()
        seen.append(made.relay.engine.enforcing)
    assert seen == [False, True]


async def test_process_that_ends_leaves_its_fleet_and_frees_its_shares_at_once() -> None:
    figures = FleetFigures()
    port = HolderPort(4, NO_SECRET, now_ms, figures)
    holder = await port.start(Address(HOST, 0))
    lessor = Lessor(LeaseTerms(15_000, 1000, 4), 1, lambda _: 1.0, now_ms(), 0)
    port.lead(lessor)
    made = app(fleet=FleetOptions(name="a", members_max=4, holder=holder))

    async def stop_when_leased() -> None:
        while not lessor.lessees:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        made.stop()

    await asyncio.gather(served(made), stop_when_leased())
    async with asyncio.timeout(5):
        while lessor.lessees:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
    assert figures.received["left"] == 1
    await port.close()
