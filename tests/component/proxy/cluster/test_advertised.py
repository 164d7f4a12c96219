"""What brokers behind a sidecar advertise: the sidecar, themselves, something else, nothing yet."""

import logging

import pytest

from proxy.config import Address
from proxy.config.options import ListenerOptions
from proxy.control.cluster import Advertised, BrokerClient, BrokerMap
from proxy.system.stats import Stats
from tests.component.proxy.cluster.test_poller import broker, metadata, unused

SIDECAR = Address("kafka-1.example", 9101)


def looked(
    upstream: Address,
    *others: ListenerOptions,
    brokers: BrokerMap | None = None,
    bind: str = "0.0.0.0",
    advertised_host: str = SIDECAR.host,
) -> Advertised:
    """A sidecar of broker 1, reached at kafka-1.example:9101, and other listeners."""
    listener = ListenerOptions(
        bind=bind,
        advertised_host=advertised_host,
        first_broker_port=9100,
        advertised_first_broker_port=9100,
        upstreams={1: upstream},
    )
    brokers = brokers or BrokerMap((), Stats())
    brokers.learn(1, *upstream)
    return Advertised([listener, ListenerOptions(), *others], BrokerClient(brokers))


@pytest.mark.parametrize(
    "advertised", [SIDECAR, Address("KAFKA-1.example", 9101)], ids=["as it is", "in other letters"]
)
async def test_broker_that_advertises_the_sidecar_is_right(advertised: Address) -> None:
    async with broker(metadata((1, *advertised), (2, "kafka-2.example", 9102))) as upstream:
        advertising = looked(upstream)
        await advertising.ask()
    assert (advertising.problem, advertising.unknown) == ("", {})


async def test_broker_that_advertises_itself_is_a_problem_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker(metadata((1, "kafka-1.example", 29392))) as upstream:
        advertising = looked(upstream)
        await advertising.ask()
        await advertising.ask()
    assert advertising.problem == (
        f"listener 'clients': broker 1 at {upstream} advertises kafka-1.example:29392, and must advertise"
        " this Sluice, kafka-1.example:9101: clients bypass it"
    )
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_broker_at_another_host_is_a_problem() -> None:
    async with broker(metadata((1, "10.0.0.1", 9101))) as upstream:
        advertising = looked(upstream)
        await advertising.ask()
    assert "advertises 10.0.0.1:9101" in advertising.problem


@pytest.mark.parametrize("own", ["0.0.0.0", "127.0.0.1"], ids=["bound everywhere", "bound on one address"])
async def test_host_is_not_judged_where_the_sidecar_does_not_say_its_own(own: str) -> None:
    async with broker(metadata((1, "kafka-1.example", 9101))) as upstream:
        advertising = looked(upstream, bind=own, advertised_host=own)
        await advertising.ask()
    assert advertising.problem == ""


async def test_address_of_the_broker_itself_is_wrong_whatever_is_expected() -> None:
    async with broker(b"") as upstream:
        pass
    listener = ListenerOptions(
        bind="0.0.0.0",
        advertised_host="0.0.0.0",
        first_broker_port=upstream.port - 1,
        advertised_first_broker_port=upstream.port - 1,
        upstreams={1: upstream},
    )
    async with broker(metadata((1, *upstream))) as other:
        brokers = BrokerMap((), Stats())
        brokers.learn(1, *other)
        advertising = Advertised([listener], BrokerClient(brokers))
        await advertising.ask()
    assert (
        f"advertises {upstream}, and must advertise this Sluice, port {upstream.port}" in advertising.problem
    )


async def test_broker_that_is_down_is_not_known() -> None:
    advertising = looked(unused())
    await advertising.ask()
    assert (advertising.problem, list(advertising.unknown)) == ("", [1])


async def test_broker_that_does_not_name_itself_is_not_known() -> None:
    async with broker(metadata((2, "kafka-2.example", 9102))) as upstream:
        advertising = looked(upstream)
        await advertising.ask()
    assert (advertising.problem, advertising.unknown) == ("", {1: "its response does not name it"})


async def test_problem_ends_with_the_corrected_address() -> None:
    brokers = BrokerMap((), Stats())
    async with broker(metadata((1, "kafka-1.example", 29392))) as upstream:
        advertising = looked(upstream, brokers=brokers)
        await advertising.ask()
    assert advertising.problem
    async with broker(metadata((1, *SIDECAR))) as upstream:
        brokers.learn(1, *upstream)
        await advertising.ask()
    assert advertising.problem == ""


async def test_one_of_several_sidecars_of_a_broker_is_enough() -> None:
    async with broker(metadata((1, "kafka-1.example", 9201))) as upstream:
        other = ListenerOptions(
            bind="0.0.0.0",
            advertised_host=SIDECAR.host,
            advertised_first_broker_port=9200,
            upstreams={1: upstream},
        )
        advertising = looked(upstream, other)
        await advertising.ask()
    assert advertising.problem == ""


async def test_without_sidecars_nothing_is_asked() -> None:
    advertising = Advertised([ListenerOptions()], BrokerClient(BrokerMap((), Stats())))
    await advertising.run()
    assert advertising.problem == ""
