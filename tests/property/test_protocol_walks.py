"""Walks through Fetch responses: any cutting of the stream gives the same bytes, and only addresses are changed."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import FETCH
from protocol.errors import WireError
from protocol.messages import AddressMap
from protocol.walks.fetch import BytesBehind, FetchWalk, PartitionsWalk
from tests.unit.protocol.kafka_frames import RESPONSES, decoded, framed, hide_odd, messages, struct
from tests.unit.protocol.relay import relay

FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
PIECES = st.lists(st.integers(1, 60), max_size=80)
CLS = RESPONSES[FETCH]


@st.composite
def fetch_responses(draw: st.DrawFn, version: int) -> Any:
    """Arbitrary Fetch responses, half of them with many plain partitions, as those of a healthy broker are."""
    message = draw(messages(CLS, version))
    for topic in message.responses:
        for _ in range(draw(st.integers(0, 5))):
            size = draw(st.sampled_from([0, 1, 126, 127, 128, 5000, 17000]))
            aborted = draw(st.integers(0, 3)) if version >= 4 else 0
            entries = [
                struct(CLS, version, "AbortedTransaction", producer_id=n, first_offset=n)
                for n in range(aborted)
            ]
            topic.partitions.append(
                struct(
                    CLS,
                    version,
                    "PartitionData",
                    partition_index=1,
                    records=b"r" * size,
                    aborted_transactions=entries,
                )
            )
    return message


@pytest.mark.parametrize("version", range(19))
@FEW
@given(data=st.data(), pieces=PIECES, stale=st.sampled_from([0, 1, 255]))
def test_only_addresses_change_however_the_stream_is_cut(
    version: int, data: st.DataObject, pieces: list[int], stale: int
) -> None:
    frame = framed(data.draw(fetch_responses(version)))
    whole = relay(FetchWalk(version, len(frame) - 4), frame, [], hide_odd)
    assert relay(FetchWalk(version, len(frame) - 4), frame, pieces, hide_odd, stale) == whole
    assert len(whole) == len(frame)
    before, after = decoded(CLS, version, frame), decoded(CLS, version, whole)
    if version >= 16:
        seen = [(n.node_id, n.host, n.port) for n in after.node_endpoints]
        named = [(n.node_id, *(hide_odd(n.node_id, "", 0) or ("", 0))) for n in before.node_endpoints]
        assert seen in ([], [node for node in named if node[1]])
        before.node_endpoints = after.node_endpoints
        assert before == after
    else:
        assert whole == frame


@pytest.mark.parametrize("version", [12, 16, 18])
@FEW
@given(data=st.data(), pieces=PIECES)
def test_without_a_map_nothing_changes(version: int, data: st.DataObject, pieces: list[int]) -> None:
    frame = framed(data.draw(fetch_responses(version)))
    assert relay(FetchWalk(version, len(frame) - 4), frame, pieces, None) == frame


def a_map(host: str) -> AddressMap:
    return lambda node_id, _host, _port: (host, node_id)


@FEW
@given(
    old=st.lists(st.text("h", max_size=12), min_size=1, max_size=4),
    racks=st.lists(st.none() | st.text("r", max_size=12), min_size=4, max_size=4),
    new=st.integers(0, 300),
)
def test_an_address_of_any_length_fits_or_is_left_out(
    old: list[str], racks: list[str | None], new: int
) -> None:
    nodes = [
        struct(CLS, 18, "NodeEndpoint", node_id=n, host=host, port=9092, rack=racks[n])
        for n, host in enumerate(old)
    ]
    frame = framed(CLS(version=18, responses=[], node_endpoints=nodes))
    host = "n" * new
    after = decoded(CLS, 18, relay(FetchWalk(18, len(frame) - 4), frame, [], a_map(host)))
    bytes_at_hand = sum(len(host) + len(rack or "") for host, rack in zip(old, racks, strict=False))
    if len(old) * new <= bytes_at_hand:
        assert [(n.host, n.port) for n in after.node_endpoints] == [(host, n) for n in range(len(old))]
    else:
        assert after.node_endpoints == []


@pytest.mark.parametrize("version", [0, 3, 4, 7, 11, 12, 13, 16, 18])
@FEW
@given(data=st.data(), pieces=PIECES)
def test_damaged_responses_give_wire_errors_and_nothing_else(
    version: int, data: st.DataObject, pieces: list[int]
) -> None:
    frame = bytearray(framed(data.draw(fetch_responses(version))))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(4, len(frame)))])
    for damaged in (bytes(frame), cut):
        try:
            sent = relay(FetchWalk(version, len(damaged) - 4), damaged, pieces, hide_odd)
        except WireError:
            continue
        assert len(sent) == len(damaged)


@pytest.mark.parametrize("version", range(4, 19))
@FEW
@given(
    data=st.data(),
    sizes=st.lists(
        st.lists(st.sampled_from([0, 3, 8, 127, 5000, 40_000]), min_size=1, max_size=4), max_size=4
    ),
    pieces=PIECES,
    hosts=st.booleans(),
)
def test_bytes_behind_do_not_depend_on_how_the_stream_is_cut(
    version: int, data: st.DataObject, sizes: list[list[int]], pieces: list[int], hosts: bool
) -> None:
    lag, mark = 100, 5000
    expected = [0, 0]  # not behind, behind
    topics = []
    for topic in sizes:
        partitions = []
        for index, size in enumerate(topic):
            behind = data.draw(st.integers(-3, 2 * lag))
            expected[behind > lag and size >= 8] += size
            partitions.append(
                struct(
                    CLS,
                    version,
                    "PartitionData",
                    partition_index=index,
                    high_watermark=mark,
                    records=((mark - behind).to_bytes(8, "big") + bytes(size))[:size],
                    aborted_transactions=[],
                )
            )
        topics.append(struct(CLS, version, "FetchableTopicResponse", topic="t", partitions=partitions))
    nodes = [
        struct(CLS, version, "NodeEndpoint", node_id=1, host="h", port=9092, rack=None)
        for _ in range(hosts and version >= 16)
    ]
    message = CLS(version=version, responses=topics, node_endpoints=nodes)
    frame = framed(message)
    sink = BytesBehind(lag)
    walk = PartitionsWalk(version, len(frame) - 4, sink=sink)
    assert len(relay(walk, frame, pieces, hide_odd)) == len(frame)
    assert walk.is_past_records
    assert [sink.ahead, sink.behind] == expected


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_sizes_are_known_with_the_last_partition_and_not_before(version: int) -> None:
    partitions = [
        struct(
            CLS, version, "PartitionData", partition_index=n, records=bytes(50_000), aborted_transactions=[]
        )
        for n in range(2)
    ]
    topics = [struct(CLS, version, "FetchableTopicResponse", topic="t", partitions=partitions)] * 2
    frame = framed(CLS(version=version, responses=topics, node_endpoints=[]))
    sink = BytesBehind(0)
    walk = PartitionsWalk(version, len(frame) - 4, sink=sink)
    at, known = 0, []
    while not walk.done:
        end = min(at + 200, len(frame))
        at += walk.feed(bytearray(frame[at:end]), 0, end - at, hide_odd)
        at += walk.passthrough
        known.append((sink.ahead, walk.is_past_records))
    assert {past: {total for total, one in known if one is past} for past in (False, True)} == {
        False: {50_000, 100_000, 150_000},
        True: {200_000},
    }
