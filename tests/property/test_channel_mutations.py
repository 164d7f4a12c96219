"""Streams of topic mutations through a channel, in front of a broker that keeps topics (KIP-599).

However the streams are cut and whatever the quota lets through: each request gets one response, in order, each of
its topics in its place, and what the client was told is what the broker did.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA
from protocol.errors import WireError
from protocol.messages.topic_mutations import STRICT_SINCE
from proxy.channel import Channel, PeerError
from quotas.definitions.entities import DEFAULT, Entity
from tests.property.test_channel_cutting import PIECES, frames
from tests.property.test_channel_garbage import DAMAGE, Damage, damaged
from tests.support.engines import engine_with
from tests.support.memory_shell import MemoryShell
from tests.support.mutation_frames import EXCEEDED, create, delete, errors, grow, mutation_response, sizes
from tests.support.playbook import channel_machine, engine_of
from tests.unit.protocol.kafka_frames import REQUESTS, decoded

FEW: Final = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
NAMES: Final = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5)
VERSIONS: Final = {CREATE_TOPICS: (2, 5, 6, 7), CREATE_PARTITIONS: (0, 2, 3), DELETE_TOPICS: (1, 4, 5, 6)}
RATE, BURST = 2, 20  # as in Kafka's own ControllerMutationQuotaTest
UNKNOWN, EXISTS, INVALID = 3, 36, 37


@st.composite
def mutations(draw: st.DrawFn) -> list[bytes]:
    """What one client might send, correlation ids counted up."""
    sent = []
    for number in range(draw(st.integers(1, 8))):
        key = draw(st.sampled_from(sorted(VERSIONS)))
        version = draw(st.sampled_from(VERSIONS[key]))
        names = draw(NAMES)
        counts = {name: draw(st.integers(1, 15)) for name in names}
        if key == CREATE_TOPICS:
            sent.append(create(version, counts, correlation_id=number))
        elif key == CREATE_PARTITIONS:
            sent.append(grow(version, counts, correlation_id=number))
        else:
            sent.append(delete(version, names, correlation_id=number))
    return sent


class Broker:
    """Keeps topics and responses as Kafka does; DeleteTopics in an order of its own."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.mutations = 0
        self.seen: list[bytes] = []

    def __call__(self, asked: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", asked, 4)
        message = decoded(REQUESTS[key], version, asked)
        if key == METADATA:
            named = {topic.name: self.topics.get(topic.name, 0) for topic in message.topics}
            return sizes(version, named, correlation_id=correlation_id)
        self.seen.append(asked)
        found = [self._do(key, topic) for topic in named_in(key, version, message)]
        if key == DELETE_TOPICS:
            found.reverse()
        return mutation_response(key, version, found, correlation_id=correlation_id)

    def _do(self, key: int, topic: Any) -> tuple[str, int]:
        name = topic if isinstance(topic, str) else topic.name
        there = self.topics.get(name, 0)
        if key == DELETE_TOPICS:
            if not there:
                return name, UNKNOWN
            self.mutations += self.topics.pop(name)
            return name, 0
        wanted = topic.num_partitions if key == CREATE_TOPICS else topic.count
        if key == CREATE_TOPICS and there:
            return name, EXISTS
        if key == CREATE_PARTITIONS and (not there or wanted <= there):
            return name, INVALID if there else UNKNOWN
        self.topics[name] = wanted
        self.mutations += wanted - there
        return name, 0


def named_in(key: int, version: int, message: Any) -> list[Any]:
    return list(message.topic_names if key == DELETE_TOPICS and version < 6 else message.topics)


def names_of(asked: bytes) -> list[str]:
    key, version = struct.unpack_from(">hh", asked, 4)
    topics = named_in(key, version, decoded(REQUESTS[key], version, asked))
    return [topic if isinstance(topic, str) else topic.name for topic in topics]


def limited(mode: str = "enforce") -> Channel:
    """A sidecar's channel under a mutation quota."""
    entries = {Entity(client_id=DEFAULT): {"controller_mutation_rate": float(RATE)}}
    return channel_machine(engine_with(entries, window_samples=BURST // RATE, mode=mode), gateway=False)


def relayed(sent: Sequence[bytes], pieces: list[int], mode: str = "enforce") -> tuple[MemoryShell, Broker]:
    """The whole conversation."""
    channel, broker = limited(mode), Broker()
    return MemoryShell(channel, broker, b"".join(sent), pieces).run(), broker


@FEW
@given(sent=mutations(), pieces=PIECES)
def test_client_gets_the_result_that_the_broker_produced(sent: list[bytes], pieces: list[int]) -> None:
    shell, broker = relayed(sent, pieces)
    response = frames(bytes(shell.responses.out))
    assert len(response) == len(sent)
    forwarded = {struct.unpack_from(">i", asked, 8)[0]: names_of(asked) for asked in broker.seen}
    topics: dict[str, int] = {}
    for number, (asked, got) in enumerate(zip(sent, response, strict=True)):
        key, version, correlation_id = struct.unpack_from(">hhi", asked, 4)
        assert struct.unpack_from(">i", got, 4) == (correlation_id,)
        found, throttle_ms = errors(key, version, got)
        rejected = [name for name, code in found if code == EXCEEDED]
        if version >= STRICT_SINCE[key]:
            assert [name for name, _ in found] == names_of(asked) or not rejected
            assert bool(throttle_ms) <= bool(rejected)
        else:
            assert not rejected
        # Nothing rejected has reached the broker; everything else has.
        assert forwarded.get(number, []) == [name for name in names_of(asked) if name not in rejected]
        wanted = dict(zip(names_of(asked), counts_of(asked), strict=True))
        for name, code in found:
            if code == 0 and name is not None:
                topics[name] = wanted[name]
    assert broker.topics == {name: count for name, count in topics.items() if count}


def counts_of(asked: bytes) -> list[int]:
    key, version = struct.unpack_from(">hh", asked, 4)
    topics = named_in(key, version, decoded(REQUESTS[key], version, asked))
    if key == DELETE_TOPICS:
        return [0] * len(topics)
    return [topic.num_partitions if key == CREATE_TOPICS else topic.count for topic in topics]


@FEW
@given(sent=mutations(), pieces=PIECES)
def test_any_cutting_gives_the_same_bytes(sent: list[bytes], pieces: list[int]) -> None:
    (whole, _), (cut, _) = relayed(sent, []), relayed(sent, pieces)
    assert cut.requests.out == whole.requests.out
    assert cut.responses.out == whole.responses.out


@FEW
@given(sent=mutations(), pieces=PIECES)
def test_bucket_is_charged_for_exactly_the_created_partitions(sent: list[bytes], pieces: list[int]) -> None:
    shell, broker = relayed(sent, pieces)
    throttle = engine_of(shell.channel).client("ANONYMOUS", "a", 1).mutations
    assert throttle.total == broker.mutations
    assert throttle.limits(shell.now_ms)
    left = throttle.tokens(shell.now_ms)
    assert left is not None
    # Never more than the burst, and no less than what was made would leave.
    assert BURST - broker.mutations <= left <= BURST
    if not shell.now_ms:
        assert left == BURST - broker.mutations


@FEW
@given(sent=mutations(), pieces=PIECES)
def test_observing_forwards_everything_and_changes_no_response(sent: list[bytes], pieces: list[int]) -> None:
    shell, broker = relayed(sent, pieces, mode="observe")
    alone = Broker()
    assert shell.responses.out == b"".join(map(alone, sent))
    assert broker.seen == sent


@FEW
@given(sent=mutations(), pieces=PIECES, damage=DAMAGE)
def test_client_that_sends_anything_ends_with_a_cause(
    sent: list[bytes], pieces: list[int], damage: Damage
) -> None:
    stream = damaged(b"".join(sent), damage)
    direction = limited().requests
    with suppress(PeerError, WireError):
        for at in range(0, len(stream), pieces[0]):
            buf = bytearray(stream[: at + pieces[0]])
            direction.receive(buf, 0, len(buf), 0)


@FEW
@given(sent=mutations(), pieces=PIECES, damage=DAMAGE)
def test_broker_that_sends_anything_ends_with_a_cause(
    sent: list[bytes], pieces: list[int], damage: Damage
) -> None:
    shell = MemoryShell(limited(), Broker(), sent[0], pieces)
    with suppress(PeerError, WireError):
        requests = shell.requests
        requests.read(len(sent[0]), 0)
        for asked in frames(bytes(requests.out)):
            unread = shell.responses
            unread.source += damaged(Broker()(asked), damage)
            while unread.source:
                unread.read(pieces[0], 0)
