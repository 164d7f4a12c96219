"""Sluice's own Metadata connection, against a scripted broker."""

import asyncio
import socket
import struct
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafka_client.metadata import Broker, ClusterBrokers
from proxy.config import Address, ListenerOptions
from proxy.control.cluster import BrokerClient, BrokerMap, MapFile, Poller
from proxy.events import Event
from proxy.system.stats import Stats
from tests.cluster import HOST
from tests.support.frames import frame
from tests.support.loop_broker import broker, listening
from tests.unit.protocol.kafka_frames import RESPONSES, framed
from tests.unit.protocol.kafka_frames import struct as entry


def metadata(*nodes: tuple[int, str, int], cluster_id: str | None = None) -> bytes:
    """A Metadata response, version 2, to correlation id 1."""
    cls = RESPONSES[3]
    brokers = [
        entry(cls, 2, "MetadataResponseBroker", node_id=node, host=host, port=port)
        for node, host, port in nodes
    ]
    message = cls(version=2, brokers=brokers, topics=[], cluster_id=cluster_id)
    return framed(message, correlation_id=1)


def poller(
    *bootstrap: Address, follow: bool = True, map_file: MapFile | None = None
) -> tuple[Poller, BrokerMap]:
    brokers = BrokerMap(bootstrap, Stats())
    return Poller(BrokerClient(brokers), map_file, follow=follow), brokers


def unused() -> Address:
    """An address without a listener."""
    with socket.create_server((HOST, 0)) as server:
        return Address(HOST, server.getsockname()[1])


async def test_brokers_of_the_response_are_learned_and_kept_on_disk(tmp_path: Path) -> None:
    async with broker(metadata((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9093))) as address:
        asked, brokers = poller(address, map_file=MapFile(tmp_path, Stats()))
        assert asked.problem, "it has never been asked"
        await asked.poll()
    assert dict(brokers.addresses()) == {1: Address("10.0.0.1", 9092), 2: Address("10.0.0.2", 9093)}
    assert asked.problem == ""
    assert MapFile(tmp_path, Stats()).read() == brokers.addresses()


async def test_next_address_is_asked_where_the_first_is_down() -> None:
    async with broker(metadata((1, "10.0.0.1", 9092))) as address:
        asked, brokers = poller(unused(), address)
        await asked.poll()
    assert list(brokers.addresses()) == [1]


async def test_pause_grows_while_the_cluster_is_down_and_begins_anew() -> None:
    address = unused()
    asked, brokers = poller(address)
    assert [await asked.poll() for _ in range(7)] == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0]
    assert str(address) in asked.problem
    async with broker(metadata((1, "localhost", 9092))) as back:
        brokers.learn(5, *back)
        await asked.poll()
    assert asked.problem == ""
    assert await asked.poll() == 0.1
    assert brokers.upstream(1)[1] is not None, "its name is resolved"


async def test_address_that_now_belongs_to_another_cluster_is_passed_over() -> None:
    """A broker's address was given to another cluster while the configured one is away."""
    async with broker(metadata((5, "10.0.9.5", 9092), cluster_id="other")) as foreign:
        async with broker(metadata((1, *foreign), cluster_id="ours")) as configured:
            asked, brokers = poller(configured)
            assert await asked.poll() == 5.0
        assert await asked.poll() == 0.1
        assert "belongs to cluster 'other', not to ours" in asked.problem
    assert (dict(brokers.addresses()), brokers.cluster_id) == ({1: foreign}, "ours")


async def test_configured_address_of_another_cluster_is_that_cluster_if_no_other_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(lambda _: said[0]) as configured, listening(lambda _: said[1]) as known:
        ours = metadata((1, *known.address), cluster_id="ours")
        other = metadata((5, "10.0.9.5", 9092), cluster_id="other")
        said = [ours, ours]
        asked, brokers = poller(configured.address)
        await asked.poll()
        said[0] = other
        await asked.poll()
        assert (list(brokers.addresses()), brokers.cluster_id) == ([1], "ours"), (
            "a broker of it still responds"
        )
        said[1] = other
        for _ in range(6):
            await asked.poll()
            assert (list(brokers.addresses()), brokers.cluster_id) == ([1], "ours"), "it may be restarting"
        assert "belongs to cluster 'other', not to ours" in asked.problem
        await asked.poll()
    assert (list(brokers.addresses()), brokers.live(), brokers.cluster_id) == ([5], (5,), "other")
    assert asked.problem == ""
    assert "another cluster" in caplog.text


@pytest.mark.parametrize("follow", [True, False])
async def test_fixed_upstreams_stay_whatever_the_cluster(follow: bool) -> None:
    async with listening(lambda _: said[0]) as upstream:
        asked, brokers = poller(upstream.address, follow=follow)
        brokers.learn(1, *upstream.address)
        for cluster_id in ("ours", "other"):
            said = [metadata((2, "10.0.0.2", 9092), cluster_id=cluster_id)]
            for _ in range(7):
                await asked.poll()
    assert list(brokers.addresses()) == ([2] if follow else [1])
    assert brokers.cluster_id == "other"


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(b"\0\0\0\1"),
        frame(b"\0\0\0\1\0\0\0\5"),
        struct.pack(">i", -5),
        struct.pack(">i", 0),
        struct.pack(">i", 2 * 1024 * 1024 + 1),
        b"\x15\x03\x03\x00\x02\x02\x46",  # a TLS alert
    ],
)
async def test_response_of_no_broker_is_a_problem(response: bytes) -> None:
    async with broker(response) as address:
        asked, _ = poller(address)
        await asked.poll()
    assert asked.problem


async def test_sidecar_ignores_the_clusters_addresses() -> None:
    async with broker(metadata((1, "10.0.0.1", 9092))) as address:
        asked, brokers = poller(address, follow=False)
        await asked.poll()
    assert (dict(brokers.addresses()), asked.problem) == ({}, "")


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "", "no.such.host\0", "no-such-host.invalid"])
async def test_name_that_can_not_be_looked_up_is_no_bug(host: str) -> None:
    asked, brokers = poller(Address(host, 9092))
    await asked.poll()
    assert (brokers.targets(), asked.problem) == (
        [],
        "cluster unreachable: no address of [cluster] bootstrap can be resolved",
    )


async def test_broker_with_a_name_that_can_not_be_is_passed_over() -> None:
    response = metadata((1, "a..b", 9092), (2, "10.0.0.2", 9093), (3, "10.0.0.3", 99_999))
    async with broker(response) as address:
        asked, brokers = poller(address)
        await asked.poll()
    assert (dict(brokers.addresses()), asked.problem) == ({2: Address("10.0.0.2", 9093)}, "")


async def test_names_that_take_for_ever_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.control.cluster.poller.RESPONSE_SECONDS_MAX", 0.01)
    begun: list[str] = []

    async def never(host: str, *_: object, **__: object) -> None:
        begun.append(host)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    asked, _ = poller(*(Address(f"host-{number}.example", 9092) for number in range(100)))
    for _ in range(3):
        await asked.poll()
    assert len(begun) == len(set(begun)) == 16


async def test_names_that_are_not_found_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    async def look_up(host: str, *_: object, **__: object) -> list[object]:
        begun.append(host)
        if host.startswith("wrong"):
            raise socket.gaierror("not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    asked, _ = poller(
        *(Address(f"{kind}-{number}.example", 1) for number in range(3) for kind in ("wrong", "right"))
    )
    await asked.poll()
    begun.clear()
    await asked.poll()
    assert {host.partition("-")[0] for host in begun[:3]} == {"right"}


class Scripted(BrokerClient):
    """Brokers that respond as they are told; None: none responds."""

    def __init__(self) -> None:
        super().__init__(BrokerMap((Address(HOST, 1),), Stats()))
        self.live: list[int] | None = []

    async def ask(self, target: object, request: object, *, anyone: bool = False) -> Any:
        if self.live is None:
            raise OSError("refused")
        return ClusterBrokers("", [Broker(node, "10.0.0.1", 9000 + node) for node in self.live])


async def test_brokers_and_cluster_that_are_lost_and_back_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(step=5000)
    monkeypatch.setattr("proxy.control.cluster.poller.now_ms", lambda: next(clock))
    told: list[Event] = []
    client = Scripted()
    asked = Poller(client, None, follow=True, tell=told.append)
    rounds = ([1, 2], [1], [1, 2], [1], [1], [1], None, None, [1, 2], [1, 2])
    for client.live in rounds:
        await asked.poll()
    assert [event.kind for event in told] == ["broker_lost", "cluster_lost", "cluster_back", "broker_back"]
    assert [event.fields.get("broker") for event in told] == [2, None, None, 2]


async def test_fixed_upstreams_are_never_lost() -> None:
    told: list[Event] = []
    client = Scripted()
    asked = Poller(client, None, follow=False, tell=told.append)
    for client.live in ([1, 2], [1], [1]):
        await asked.poll()
    assert told == []


async def test_brokers_without_a_port_are_told_when_they_appear() -> None:
    told: list[Event] = []
    client = Scripted()
    gateway = ListenerOptions(name="a", broker_id_max=2)
    beside = ListenerOptions(name="b", broker_id_max=2, upstreams={1: Address(HOST, 1)})
    asked = Poller(client, None, follow=True, listeners=(gateway, beside), tell=told.append)
    for client.live in ([1, 2], [1, 5], [1, 5], [1, 5, 1001], [1], [1, 5]):
        await asked.poll()
    found = [event for event in told if event.kind == "brokers_without_port"]
    assert [(event.fields["listener"], event.fields["brokers"]) for event in found] == [
        ("a", "5"),
        ("a", "1001"),
        ("a", "5"),
    ]
    assert found[1].text.startswith('Listener "a" has no port for broker 1001, so clients do not learn of it')
    assert found[1].text.endswith("write broker_id_max = 1001 (now 2) and restart.")
    assert found[0].warning


def test_many_brokers_without_a_port_are_named_in_part() -> None:
    text = ListenerOptions(broker_id_max=2).port_problem(range(100, 130))
    assert "broker 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 and 20 more, so" in text
    assert text.endswith("write broker_id_max = 129 (now 2) and restart")
    # Broker N is at 19100 + N, and the last port is 65535.
    text = ListenerOptions().port_problem([100_000])
    assert text.endswith("there are ports for ids up to 46435 alone; give it a lower node.id")
