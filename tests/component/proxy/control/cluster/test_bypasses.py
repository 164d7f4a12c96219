"""What brokers behind a sidecar advertise: the sidecar, themselves, something else, nothing yet."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

import pytest
from kafka.protocol.admin import DescribeAclsResponse
from msgspec.structs import replace

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


BESIDE = ListenerOptions(
    bind="0.0.0.0", advertised_host=SIDECAR.host, first_broker_port=9100, advertised_first_broker_port=9100
)


def looked(
    upstream: Address, *others: ListenerOptions, brokers: BrokerMap | None = None, own: str = SIDECAR.host
) -> Advertised:
    """A sidecar of broker 1, reached at port 9101 of its own host, and other listeners."""
    brokers = brokers or BrokerMap((), Stats())
    brokers.learn(1, *upstream)
    bind = "0.0.0.0" if own == SIDECAR.host else own
    listener = replace(BESIDE, bind=bind, advertised_host=own, upstreams={1: upstream})
    return Advertised([listener, ListenerOptions(), *others], BrokerClient(brokers))


def at(port: int, host: str = SIDECAR.host) -> tuple[int, str, int]:
    """Broker 1, at an address that it advertises."""
    return 1, host, port


@pytest.mark.parametrize(
    ("advertised", "own", "problem"),
    [
        (at(9101), SIDECAR.host, ""),
        (at(9101, "KAFKA-1.example"), SIDECAR.host, ""),
        (at(9101, "10.0.0.1"), SIDECAR.host, "advertises 10.0.0.1:9101"),
        # Where the sidecar does not say its own host, that is not judged.
        (at(9101), "0.0.0.0", ""),
        (at(9101), "127.0.0.1", ""),
    ],
)
async def test_broker_that_advertises_the_sidecar_is_right(
    advertised: tuple[int, str, int], own: str, problem: str
) -> None:
    async with broker(metadata(advertised, (2, "kafka-2.example", 9102))) as upstream:
        advertising = looked(upstream, own=own)
        await advertising.ask()
    assert problem in advertising.problem
    assert bool(problem) == bool(advertising.problem)
    assert advertising.unknown == {}


async def test_one_of_several_sidecars_of_a_broker_is_enough() -> None:
    async with broker(metadata(at(9201))) as upstream:
        other = replace(BESIDE, advertised_first_broker_port=9200, upstreams={1: upstream})
        advertising = looked(upstream, other)
        await advertising.ask()
    assert advertising.problem == ""


async def test_broker_that_advertises_itself_is_a_problem_until_it_is_corrected_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = BrokerMap((), Stats())
    async with broker(metadata(at(29392))) as upstream:
        advertising = looked(upstream, brokers=brokers)
        await advertising.ask()
        await advertising.ask()
    assert advertising.problem == (
        f"listener 'clients': broker 1 at {upstream} advertises kafka-1.example:29392, and must advertise"
        " this Sluice, kafka-1.example:9101: clients bypass it"
    )
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    async with broker(metadata(at(9101))) as corrected:
        brokers.learn(1, *corrected)
        await advertising.ask()
    assert advertising.problem == ""


async def test_address_of_the_broker_itself_is_wrong_whatever_is_expected() -> None:
    upstream = unused()
    port = upstream.port - 1
    listener = ListenerOptions(
        bind="0.0.0.0",
        advertised_host="0.0.0.0",
        first_broker_port=port,
        advertised_first_broker_port=port,
        upstreams={1: upstream},
    )
    async with broker(metadata((1, *upstream))) as other:
        brokers = BrokerMap((), Stats())
        brokers.learn(1, *other)
        advertising = Advertised([listener], BrokerClient(brokers))
        await advertising.ask()
    expected = f"advertises {upstream}, and must advertise this Sluice, port {upstream.port}"
    assert expected in advertising.problem


async def test_broker_that_is_down_or_does_not_name_itself_is_not_known() -> None:
    down = looked(unused())
    await down.ask()
    assert (down.problem, list(down.unknown)) == ("", [1])
    async with broker(metadata((2, "kafka-2.example", 9102))) as upstream:
        unnamed = looked(upstream)
        await unnamed.ask()
    assert (unnamed.problem, unnamed.unknown) == ("", {1: "its response does not name it"})


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
    assert not list(unguarded_warnings(parsed(CLUSTER), None)), "nothing is kept there"
