"""What brokers behind a sidecar advertise: the sidecar, themselves, something else, nothing yet."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

import pytest
from kafka.protocol.admin import DescribeAclsResponse

from kafka_client.metadata import SECURITY_DISABLED
from proxy.commands.check import unguarded_warnings
from proxy.config import Address
from proxy.config.options import ListenerOptions
from proxy.control.cluster import Advertised, BrokerClient, BrokerMap
from proxy.control.cluster.bypasses import Unguarded, own_things
from proxy.system.stats import Stats
from proxy.topics.topic import Access
from tests.component.proxy.control.cluster.test_poller import metadata, unused
from tests.support.configurations import parsed
from tests.support.loop_broker import LoopBroker, broker, listening
from tests.unit.protocol.kafka_frames import framed

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
    upstream = unused()
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


CLUSTER = '[cluster]\nbootstrap = "127.0.0.1:1"\n[[listeners]]\n'
LINE = "the brokers have no authorizer: every client can take over what Sluice keeps there"


def authorizing(code: int) -> AbstractAsyncContextManager[LoopBroker]:
    """A broker that responds with an error code to each DescribeAcls."""

    def respond(frame: bytes) -> bytes:
        response = DescribeAclsResponse(
            version=1, throttle_time_ms=0, error_code=code, error_message=None, resources=[]
        )
        return framed(response, correlation_id=int.from_bytes(frame[8:12]))

    return listening(respond)


@pytest.mark.parametrize("code", [0, 31, SECURITY_DISABLED])
async def test_missing_authorizer_is_one_line_and_a_metric(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with authorizing(code) as upstream:
        found = Unguarded(Access([upstream.address]), ["group __sluice"])
        running = asyncio.create_task(found.run())
        if code == SECURITY_DISABLED:
            async with asyncio.timeout(20):
                while not found.unguarded:  # noqa: ASYNC110 - what is waited for has no event
                    await asyncio.sleep(0.01)
        else:  # one that has no right to ask has an authorizer
            await asyncio.sleep(0.3)
        running.cancel()
    expected = code == SECURITY_DISABLED
    assert caplog.messages.count(LINE) == expected
    (family,) = found.families()
    assert (family.name, family.rows) == ("sluice_brokers_unguarded", [((), float(expected))])


@pytest.mark.parametrize(
    ("more", "things"),
    [
        ("", []),
        ('[quotas]\nstore = "topic"\n', ["topic __sluice-quotas", "topic __sluice-audit"]),
        ('[fleet]\nbind = "127.0.0.1:7000"\n', ["group __sluice"]),
        ('[fleet]\nholder = "127.0.0.1:7000"\n', []),
        ('[reassignment]\nmode = "batch"\njournal = "topic"\n', ["topic __sluice-reassignments"]),
    ],
)
def test_what_is_kept_at_brokers_is_named(more: str, things: list[str]) -> None:
    assert own_things(parsed(CLUSTER + more)) == things


async def test_check_warns_and_says_what_to_do() -> None:
    async with authorizing(SECURITY_DISABLED) as upstream:
        text = CLUSTER.replace("127.0.0.1:1", str(upstream.address)) + '[fleet]\nbind = "127.0.0.1:7000"\n'
        warnings = await asyncio.to_thread(lambda: list(unguarded_warnings(parsed(text), None)))
    assert len(warnings) == 1
    assert (
        "no authorizer: every client that reaches them can take over or destroy group __sluice" in warnings[0]
    )
    assert "authorizer.class.name" in warnings[0]


def test_check_says_that_it_could_not_ask() -> None:
    text = CLUSTER + '[fleet]\nbind = "127.0.0.1:7000"\n'
    (warning,) = unguarded_warnings(parsed(text), None)
    assert warning.startswith("whether the brokers have an authorizer was not found out: ")


def test_without_topics_and_group_no_broker_is_asked() -> None:
    assert not list(unguarded_warnings(parsed(CLUSTER), None))
