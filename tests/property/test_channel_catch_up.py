"""Catch-up reads however both streams are cut: the same charges and mutes, beside topics' quotas and capture too."""

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.fetch_session import SessionTable
from proxy.channel import Channel, ChannelSettings, Tap
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.property.test_channel_cutting import CUTTINGS, PIECES
from tests.support.frames import fetch, fetched_from, heartbeat, some_response
from tests.support.memory_shell import MemoryShell
from tests.support.playbook import engine_of, gateway_address
from tests.unit.proxy.channel.test_captured import Rows

LAG: Final = 100
FETCHED: Final = st.dictionaries(
    st.sampled_from(["t", "u"]),
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 2 * LAG)), max_size=3),
    max_size=2,
)
VERSIONS: Final = st.lists(st.sampled_from([4, 11, 12, 13, 18, 0]), min_size=1, max_size=8)


def relayed(
    versions: list[int],
    fetched: dict[str, list[tuple[int, int]]],
    pieces: list[int],
    options: EngineOptions,
    *,
    also: bool,
) -> MemoryShell:
    """What passes when a client sends Fetches of these versions (0: a Heartbeat).

    Args:
        also: whether topics have quotas, and the client is captured.
    """
    limits = {"consumer_byte_rate": 3000.0, "catch_up_byte_rate": 2000.0, "catch_up_lag": float(LAG)}
    entries = {Entity(client_id="a"): limits}
    if also:
        entries[Entity(topic="t")] = {"consumer_byte_rate": 2500.0}
    place = ChannelSettings(broker=1, address_map=gateway_address, frame_bytes_max=1_000_000)
    tap = Tap(Rows(), 7, "10.0.0.1", "clients", "off", 0.0) if also else None
    channel = Channel(place, Engine(options, Definitions(entries)), SessionTable(9), Stats(), tap)
    sizes = {topic: [size for size, _ in partitions] for topic, partitions in fetched.items()}
    lags = {topic: [lag for _, lag in partitions] for topic, partitions in fetched.items()}

    def broker(asked: bytes) -> bytes:
        _, version, correlation_id = struct.unpack_from(">hhi", asked, 4)
        if versions[correlation_id]:
            return fetched_from(version, sizes, correlation_id=correlation_id, lags=lags)
        return some_response(correlation_id=correlation_id)

    sent = [
        fetch(version, correlation_id=number) if version else heartbeat(correlation_id=number)
        for number, version in enumerate(versions)
    ]
    return MemoryShell(channel, broker, b"".join(sent), pieces).run()


@pytest.mark.parametrize("also", [False, True], ids=["alone", "with topics and capture"])
@pytest.mark.parametrize(
    "options",
    [EngineOptions(), EngineOptions(policy="schedule"), EngineOptions(mode="observe")],
    ids=["kip13", "schedule", "observe"],
)
@CUTTINGS
@given(versions=VERSIONS, fetched=FETCHED, pieces=PIECES)
def test_any_cutting_gives_the_same_charges_and_mutes(
    options: EngineOptions,
    also: bool,
    versions: list[int],
    fetched: dict[str, list[tuple[int, int]]],
    pieces: list[int],
) -> None:
    whole, cut = (relayed(versions, fetched, how, options, also=also) for how in ([], pieces))
    # The throttle time of a response is reported only if the sizes have come with its head.
    assert len(cut.requests.out) == len(whole.requests.out)
    assert len(cut.responses.out) == len(whole.responses.out)
    assert cut.waits == whole.waits
    one, other = (sorted(engine_of(shell.channel).views(shell.now_ms)) for shell in (whole, cut))
    assert one == other
    whole_frames = sum(size for partitions in fetched.values() for size, _ in partitions)
    behind = sum(
        size for partitions in fetched.values() for size, lag in partitions if lag > LAG and size >= 8
    )
    counted = {view.type: view.bytes_total for view in one}
    if options.mode == "observe":
        fetches = len(versions) - versions.count(0)
        assert counted.get("CatchUp", 0) == fetches * behind
        assert counted["Fetch"] >= fetches * (whole_frames - behind)
