"""Share groups under a consumer quota (KIP-932), in front of real brokers: an unmodified client, and one that cheats.

The cheat keeps eight ShareFetches on their way, each with an acknowledgement that it makes up: those pass at once,
whatever the quota says, so nothing may come with them. In t seconds at most T · (t + 1 s of burst), one batch more
than max_bytes allows, and what the responses hold beside records may pass.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster import Cluster, tools
from tests.cluster.features import SHARE_GROUPS
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.raw_topics import Topic, batch, coordinator, describe, write
from tests.support.share_frames import Fetched, Member, read_fetched
from tests.support.wire import wired

pytestmark = pytest.mark.needs(SHARE_GROUPS)

T = 200_000
BATCH_BYTES = 50_000
BATCHES = 200  # 10 MB: at the rate 50 s
ON_THEIR_WAY = 8
SECONDS = 6.0
UNACKNOWLEDGED = 10_000_000  # an offset that no record has


# One second of burst under both policies, and a quota for each test: made-up acknowledgements pass and count, so they
# leave a debt of seconds on a fast machine.
CLIENTS = ("acknowledging", "pipelining", "honest", "java")
sluice = gateway_fixture(
    policies=["kip13", "schedule"],
    quotas={"window_samples": 2},
    client_quotas={name: {"consumer_byte_rate": T} for name in CLIENTS},
)


@pytest.fixture(scope="module")
def stock(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    topic = describe(kafka, create_topic())
    records = batch([bytes(BATCH_BYTES - 100)])
    for _ in range(BATCHES):
        write(kafka.address(topic.leaders[0]), topic, 0, records)
    return topic


def begin_at_earliest(kafka: Cluster, group: str) -> None:
    """A share group begins at the latest offset; only its own configuration can say otherwise."""
    words = ("--alter", "--entity-type", "groups", "--entity-name", group)
    tools.configs(kafka.bootstrap(), *words, "--add-config", "share.auto.offset.reset=earliest")


@pytest.fixture
def member(kafka: Cluster, sluice: SluiceProcess, stock: Topic) -> Iterator[Member]:
    """A member of a new group that begins at the topic's begin; only its fetches go through Sluice."""
    with ExitStack() as wires:
        first = wires.enter_context(wired(kafka.address(1)))
        group = f"share-{secrets.token_hex(4)}"
        begin_at_earliest(kafka, group)
        coordinates = wires.enter_context(wired(kafka.address(coordinator(first, group).node_id)))
        broker = sluice.ports.address(stock.leaders[0])
        through = wires.enter_context(wired(broker, "beginner"))
        made = Member(coordinates, through, group, stock.name, stock.topic_id)
        made.begin([0])
        yield made


def batches(found: Fetched) -> list[tuple[int, int]]:
    return found.acquired.get(0, [])


@pytest.mark.parametrize("client_id", ["acknowledging", "pipelining"])
def test_many_share_fetches_on_their_way_are_no_way_round_the_quota(member: Member, client_id: str) -> None:
    member.wire.client_id = client_id
    made_up = {0: [(UNACKNOWLEDGED, UNACKNOWLEDGED)]} if client_id == "acknowledging" else None
    started = time.monotonic()
    moved = responses = 0
    for _ in range(ON_THEIR_WAY):
        member.wire.send_bytes(member.fetch_frame((), made_up))
    while (elapsed := time.monotonic() - started) < SECONDS:
        found = read_fetched(member.wire.receive())
        assert (found.error, not made_up or found.errors[0][0] == 0) == (0, True)
        moved += found.bytes_total
        responses += 1
        member.wire.send_bytes(member.fetch_frame((), made_up))
    factor = moved / (T * (elapsed + 1) + BATCH_BYTES)
    print(f"{moved} bytes in {responses} responses in {elapsed:.1f} s: {factor:.2f} times what may pass")
    if made_up:
        assert responses > 20, "they pass at once"
    else:
        assert moved
    assert factor <= 1.0


def test_acknowledgements_pass_a_mute_and_count(member: Member) -> None:
    member.wire.client_id = "honest"
    taken: list[tuple[int, int]] = []
    until = (
        time.monotonic() + 10
    )  # under `kip13` what is over the quota may be held each time, and never muted
    found = member.fetch()
    while not found.throttle_ms and time.monotonic() < until:
        taken += batches(found)
        found = member.fetch()
    taken += batches(found)
    started = time.monotonic()
    response = member.fetch((), {0: taken[:1]})
    assert (response.errors[0], response.bytes_total) == ((0, 0), 0)
    response = member.fetch((), {0: [(UNACKNOWLEDGED, UNACKNOWLEDGED)]})
    assert response.errors[0][1] != 0, "the broker has looked at it"
    assert not response.bytes_total
    member.acknowledge({0: taken[1:]})
    assert time.monotonic() - started < max(0.5, found.throttle_ms / 1000)


@pytest.mark.parametrize(("client_id", "at_least_seconds"), [("java", 3.0), ("unlimited", 0.0)])
def test_unmodified_share_consumer_gets_every_record(
    kafka: Cluster,
    sluice: SluiceProcess,
    create_topic: CreateTopic,
    tmp_path: Path,
    client_id: str,
    at_least_seconds: float,
) -> None:
    topic = describe(kafka, create_topic())
    for number in range(20):  # 1 MB: 5 s at the rate, one of them free
        write(kafka.address(topic.leaders[0]), topic, 0, batch([f"{number}-".encode() + b"x" * BATCH_BYTES]))
    group = f"share-{secrets.token_hex(4)}"
    begin_at_earliest(kafka, group)
    config = tmp_path / "client.properties"
    config.write_text(f"client.id={client_id}\nmax.partition.fetch.bytes=1048576\n")
    started = time.monotonic()
    printed = tools.run(
        tools.CONSOLE_SHARE_CONSUMER,
        *("--bootstrap-server", sluice.bootstrap, "--topic", topic.name, "--group", group),
        *("--max-messages", "20", "--timeout-ms", "60000", "--command-config", str(config)),
    )
    elapsed = time.monotonic() - started
    numbers = [int(line.split("-")[0]) for line in printed.splitlines() if "-xxx" in line]
    assert sorted(set(numbers)) == list(range(20))
    print(f"{client_id}: {elapsed:.1f} s, {len(numbers)} records")
    assert elapsed > at_least_seconds
