"""How many files a reader opens to follow one request: from its arrival to the write of its response, by tracing.

The connection is warm: its broker connection is open, its client is known, and has been throttled before.
docs/architecture.md lists the ways function by function.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from protocol.messages.fetch import empty_response
from quotas.replication.replication_quotas import (
    BrokerLimits,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from tests.component.proxy.net.rig import End, Rig, until
from tests.support.frames import fetch, fetch_response, produce, produce_response
from tests.support.replicas import Follower, Leader, topic_names

ROOT: Final = Path(__file__).parents[4]
# One read of many is timed, by chance: it is no part of the way.
SAMPLED: Final = "Stats.observe_latency"
PRODUCT: Final = tuple(f"{ROOT / name}/" for name in ("protocol", "quotas", "proxy"))


@dataclass
class Way:
    """What was entered, in the order of the first entries."""

    functions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """The files, each once, relative to the repository."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    def __str__(self) -> str:
        named = {
            file: [name for place, name in dict.fromkeys(self.functions) if place == file]
            for file in self.files
        }
        return "\n".join(
            f"{index:>3} {file}: {', '.join(names)}" for index, (file, names) in enumerate(named.items(), 1)
        )


@contextmanager
def entered(way: Way | None = None) -> Iterator[Way]:
    """Note every call of the product in this thread while the block runs, in a given way or in a new one."""
    way = Way() if way is None else way

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PRODUCT) and code.co_qualname != SAMPLED:
            file = code.co_filename.removeprefix(f"{ROOT}/")
            way.functions.append((file, code.co_qualname))

    sys.setprofile(note)
    try:
        yield way
    finally:
        sys.setprofile(None)


EMPTY_RESPONSE = empty_response(12, 1, 0, 0)


async def connected(rig: Rig, request: bytes, response: bytes) -> tuple[End, End]:
    """A client that has made one request, and its broker."""
    client, broker = await rig.joined(request)
    await broker.send(response)
    await client.receive(len(response))
    return client, broker


async def way_of(
    client: End, broker: End, request: bytes, respond: Callable[[bytes], bytes]
) -> tuple[Way, bytes]:
    """The way of one request, and its response."""
    with entered() as way:
        await client.send(request)
        prefix = await broker.receive(4)
        forwarded = prefix + await broker.receive(int.from_bytes(prefix, "big"))
    response = respond(forwarded)
    with entered(way):
        await broker.send(response)
        received = await client.receive(len(response))
    return way, received


def holds(way: Way, files_max: int) -> None:
    """Assert the number of files, and print the way."""
    print(f"\n{way}")
    assert len(way.files) <= files_max, f"\n{way}"


async def test_produce_over_its_quota(rig: Rig) -> None:
    rig.quota(producer=100_000)
    client, broker = await connected(rig, produce(9, 1_010_000), produce_response(9))
    await until(lambda: not rig.stats.muted, "the mute is over")
    way, _ = await way_of(client, broker, produce(9, 3000), lambda _: produce_response(9))
    assert ("proxy/net/connection.py", "Wait.begin") in way.functions, "it was muted"
    holds(way, 17)


async def test_produce_held_by_schedule(rig: Rig) -> None:
    rig.quota(producer=10_000, policy="schedule")
    client, broker = await connected(rig, produce(9, 500), produce_response(9))
    way = Way()
    for _ in range(2):
        held_ms = rig.stats.held_ms_total
        rig.charge_produce(12_000)
        way, _ = await way_of(client, broker, produce(9, 500), lambda _: produce_response(9))
        assert rig.stats.held_ms_total > held_ms, "it was held"
        await until(lambda: not rig.stats.muted, "the mute is over")
    holds(way, 15)


async def test_throttled_fetch(rig: Rig) -> None:
    rig.quota(consumer=100_000)
    asked, way = fetch(12), Way()
    client, _ = await connected(rig, asked, fetch_response(12, 500))
    for size in (1_020_000, 20_000):
        rig.charge_fetch(size)
        way = Way()
        with entered(way):
            await client.send(asked)
            await client.receive(len(EMPTY_RESPONSE))
        await until(lambda: not rig.stats.muted, "the mute is over")
    assert rig.stats.fetches_answered == 2
    holds(way, 13)


async def test_fetch_of_a_follower(rig: Rig) -> None:
    quotas = ReplicationQuotas(ReplicationOptions(policy="schedule"))
    quotas.name_topics(topic_names([1, 2]))
    quotas.limit(BrokerLimits(default=10_000), BrokerLimits())
    quotas.throttle(ThrottledReplicas(leaders={"t2": parse_replicas("*")[0]}))
    follower, leader = Follower(offsets={(1, 0): 10, (2, 0): 0}), Leader(ends={(1, 0): 10, (2, 0): 1000})
    client = rig.connect(replication=quotas)
    await client.send(follower.request())
    broker = await rig.accept()
    prefix = await broker.receive(4)
    forwarded = prefix + await broker.receive(int.from_bytes(prefix, "big"))
    response, _ = leader.respond(follower.version, forwarded)
    await broker.send(response)
    follower.take(await client.receive(len(response)))

    way, received = await way_of(
        client, broker, follower.request(), lambda asked: leader.respond(follower.version, asked)[0]
    )
    assert follower.take(received) < 20_000, "its moved replica is throttled"
    holds(way, 14)
