"""Whether brokers have an authorizer: what is asked, logged and shown; a broker of this process responds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kafka.protocol.admin import DescribeAclsResponse

from kafka_client.metadata import SECURITY_DISABLED
from proxy.commands.check import unguarded_warnings
from proxy.control.cluster.bypasses import Unguarded, own_things
from proxy.topics.topic import Access
from tests.support.configurations import parsed
from tests.unit.protocol.kafka_frames import framed

CLUSTER = '[cluster]\nbootstrap = "127.0.0.1:1"\n[[listeners]]\n'
LINE = "the brokers have no authorizer: every client can take over what Sluice keeps there"


@asynccontextmanager
async def broker(code: int) -> AsyncIterator[tuple[str, int]]:
    """A broker that responds with an error code to each DescribeAcls."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            except asyncio.IncompleteReadError:
                writer.close()
                return
            response = DescribeAclsResponse(
                version=1, throttle_time_ms=0, error_code=code, error_message=None, resources=[]
            )
            data = bytearray(framed(response))
            data[4:8] = frame[4:8]
            writer.write(bytes(data))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [0, 31, SECURITY_DISABLED])
async def test_missing_authorizer_is_one_line_and_a_metric(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker(code) as address:
        found = Unguarded(Access([address]), ["group __sluice"])
        running = asyncio.create_task(found.run())
        if code == SECURITY_DISABLED:
            await until(lambda: found.unguarded)
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
    async with broker(SECURITY_DISABLED) as (host, port):
        text = CLUSTER.replace("127.0.0.1:1", f"{host}:{port}") + '[fleet]\nbind = "127.0.0.1:7000"\n'
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
