"""Topics' quotas however both streams are cut: the same bytes, the same charges, the same mutes."""

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.api import FETCH, PRODUCE
from protocol.messages.fetch_session import SessionTable
from proxy.channel import Channel, ChannelSettings
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.property.test_channel_cutting import CUTTINGS, PIECES
from tests.support.frames import (
    fetch,
    fetched_from,
    heartbeat,
    produce_response,
    produce_to,
    some_response,
    topic_id,
)
from tests.support.memory_shell import MemoryShell
from tests.support.playbook import engine_of, gateway_address

TOPICS: Final = st.dictionaries(
    st.sampled_from(["t", "u", "free"]), st.lists(st.integers(0, 9000), max_size=3), max_size=3
)


@st.composite
def requests(draw: st.DrawFn) -> list[bytes]:
    """What one client might send, correlation ids counted up."""
    sent = []
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["produce", "fetch", "other"]))
        if kind == "produce":
            version, acks = draw(st.sampled_from([3, 8, 9, 13])), draw(st.sampled_from([-1, 0, 1]))
            sent.append(produce_to(version, draw(TOPICS), correlation_id=number, acks=acks))
        elif kind == "fetch":
            sent.append(fetch(draw(st.sampled_from([4, 11, 12, 13, 18])), correlation_id=number))
        else:
            sent.append(heartbeat(correlation_id=number))
    return sent


def relayed(
    sent: list[bytes], fetched: dict[str, list[int]], pieces: list[int], options: EngineOptions
) -> MemoryShell:
    limits = {"producer_byte_rate": 3000.0, "consumer_byte_rate": 2000.0}
    entries = {Entity(topic="t"): limits, Entity(topic="u"): {"producer_byte_rate": 500.0}}
    quotas = Engine(options, Definitions(entries))
    for name in ("t", "u"):
        quotas.topics.names.learn(topic_id(name), name)
    assert quotas.definitions.topic_limit("producer_byte_rate", "free") is None
    place = ChannelSettings(broker=1, address_map=gateway_address, frame_bytes_max=1_000_000)

    def broker(asked: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", asked, 4)
        if key == PRODUCE:
            acks = struct.unpack_from(">h", asked, 14 + 1 + 2)[0]
            return produce_response(version, correlation_id=correlation_id) if acks else b""
        if key == FETCH:
            return fetched_from(version, fetched, correlation_id=correlation_id)
        return some_response(correlation_id=correlation_id)

    return MemoryShell(Channel(place, quotas, SessionTable(9), Stats()), broker, b"".join(sent), pieces).run()


@pytest.mark.parametrize(
    "options",
    [EngineOptions(), EngineOptions(policy="schedule"), EngineOptions(mode="observe")],
    ids=["kip13", "schedule", "observe"],
)
@CUTTINGS
@given(sent=requests(), fetched=TOPICS, pieces=PIECES)
def test_any_cutting_gives_the_same_bytes_and_charges(
    options: EngineOptions, sent: list[bytes], fetched: dict[str, list[int]], pieces: list[int]
) -> None:
    whole, cut = (relayed(sent, fetched, how, options) for how in ([], pieces))
    assert cut.requests.out == whole.requests.out == b"".join(sent)
    assert cut.responses.out == whole.responses.out
    assert cut.waits == whole.waits
    one, other = (sorted(engine_of(shell.channel).views(shell.now_ms, "topics")) for shell in (whole, cut))
    assert one == other
    assert not any(view.client_id == str(DEFAULT) for view in one)
