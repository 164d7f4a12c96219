"""Our tables and rewritten frames, judged by Kafka's own classes.

For the versions that kafka-python lacks this is the only judge, for the others a second one. Each test goes through all
versions of an API that Kafka serves, with a few arbitrary messages each.
"""

import contextlib
from collections.abc import Callable
from typing import Final

import pytest

from protocol import api, header, throttle
from protocol.api import DESCRIBE_CONFIGS
from protocol.messages import addresses, api_versions, fetch, groups, metadata, produce
from protocol.walks import share
from protocol.walks.fetch import FetchWalk
from protocol.walks.share import ShareWalk
from protocol.walks.walk import Walk
from tests.cluster.jars import NEWEST
from tests.oracle.judge import KAFKA, Judge
from tests.unit.protocol.kafka_frames import hide_odd
from tests.unit.protocol.relay import relay

SEEDS: Final = range(4)
# The oldest versions that Kafka 4 still has.
OLDEST: Final = {
    api.PRODUCE: 3, api.FETCH: 4, DESCRIBE_CONFIGS: 1, api.SHARE_FETCH: 1, api.SHARE_ACKNOWLEDGE: 1,
}  # fmt: skip
# No throttle time of Kafka's own can be larger.
LARGEST: Final = 2**31 - 1


def served(api_key: int) -> range:
    return range(OLDEST.get(api_key, 0), api.MAX_VERSION[api_key] + 1)


def test_table_is_kafkas(judge: Judge) -> None:
    apis = judge.apis()
    assert api.API_NAMES.keys() >= apis.keys()
    for key in api.MAX_VERSION.keys() & apis.keys():
        name, newest, marks = apis[key]
        assert api.MAX_VERSION[key] >= newest, name
        for mark in marks:
            assert api.flexible(key, int(mark[:-1])) == mark.endswith("+"), (name, mark)
    if KAFKA == NEWEST:
        assert apis.keys() == api.API_NAMES.keys()
        assert {key: apis[key][0] for key in api.MAX_VERSION} == {
            key: api.API_NAMES[key] for key in api.MAX_VERSION
        }
        assert {key: row[1] for key, row in apis.items() if row[1] >= 0} == api.MAX_VERSION


@pytest.mark.parametrize("api_key", sorted(api.MAX_VERSION))
def test_throttle_time_lies_where_kafka_puts_it(judge: Judge, api_key: int) -> None:
    for version in judge.versions(api_key):
        for seed in SEEDS:
            frame = judge.response(api_key, version, seed)
            if api_key == api.API_VERSIONS:
                # Arbitrary, it might be that of a version which is not spoken, whose response has another form.
                frame = judge.frame("set", "response", api_key, version, "errorCode", 0, frame)
            patched = bytearray(frame)
            if throttle.patch(patched, api_key, version, LARGEST):
                expected = judge.frame("set", "response", api_key, version, "throttleTimeMs", LARGEST, frame)
                assert bytes(patched) == expected, (version, seed)
            else:
                # Kafka refuses to write it there, or leaves it out of versions that are older than it.
                with contextlib.suppress(ValueError):
                    told = judge.frame("set", "response", api_key, version, "throttleTimeMs", LARGEST, frame)
                    assert told == frame, (version, seed)


@pytest.mark.parametrize("api_key", sorted(api.MAX_VERSION))
def test_body_of_a_request_begins_where_kafka_begins_it(judge: Judge, api_key: int) -> None:
    for version in judge.versions(api_key):
        frame, body = judge.request(api_key, version, 1)
        assert header.body_start(frame, 0, len(frame), api_key, version) == body
        assert header.client_id(frame, 0, len(frame)) == "judge"


@pytest.mark.parametrize("version", served(api.FETCH))
def test_fetch_scalars_are_those_kafka_wrote(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame, body = judge.request(api.FETCH, version, seed)
        fields = fetch.read_request(frame, body, len(frame), version)
        assert fields is not None
        names = ["maxWaitMs", "minBytes", "maxBytes"]
        names += ["sessionId", "sessionEpoch"] if version >= 7 else []
        names.insert(0, "replicaState.replicaId" if version >= 15 else "replicaId")
        seen = [judge.number("request", api.FETCH, version, name, frame) for name in names]
        if version >= 15:
            fields = fields._replace(replica_id=fetch.replica_id(frame, body, version))
        assert list(fields[: len(names)]) == seen


@pytest.mark.parametrize("version", served(api.SHARE_FETCH))
def test_share_fetch_may_wait_as_kafka_wrote(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame, body = judge.request(api.SHARE_FETCH, version, seed)
        names = ("maxWaitMs", "minBytes")
        seen = tuple(judge.number("request", api.SHARE_FETCH, version, name, frame) for name in names)
        assert share.fetch_waits(frame, body, len(frame)) == seen
        fields = share.read_fetch(frame, body, len(frame), version)
        assert (fields.max_wait_ms, fields.min_bytes) == seen
        assert fields.max_bytes == judge.number("request", api.SHARE_FETCH, version, "maxBytes", frame)
        without_room = bytearray(frame)
        share.request_no_records(without_room, fields)
        for name in (*names, "maxRecords"):
            frame = judge.frame("set", "request", api.SHARE_FETCH, version, name, 0, frame)
        assert without_room == frame


@pytest.mark.parametrize("version", range(7, api.MAX_VERSION[api.FETCH] + 1))
def test_fetch_requests_are_written_as_kafka_writes_them(judge: Judge, version: int) -> None:
    same = 0
    for seed in range(12):
        frame, body = judge.request(api.FETCH, version, seed)
        partitions, forgotten = fetch.full_topics(frame, body, version)
        written = fetch.encode_request(frame, body, version, 42, partitions, forgotten)
        again, left = fetch.full_topics(written, body, version)
        assert (again, left) == (partitions, forgotten)
        expected = judge.frame("set", "request", api.FETCH, version, "sessionEpoch", 42, frame)
        # Topics without partitions are not written again; such a frame comes out shorter.
        if len(written) == len(frame):
            assert written == expected
            same += 1
    assert same, "every arbitrary request had an empty topic"


@pytest.mark.parametrize("version", served(api.FETCH))
def test_empty_fetch_response_is_kafkas(judge: Judge, version: int) -> None:
    judge.require(api.FETCH, version)
    assert fetch.empty_response(version, 9, 5, 77) == judge.frame("empty", version, 9, 5, 77)


@pytest.mark.parametrize("version", served(api.PRODUCE))
def test_acks_are_those_kafka_wrote(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame, body = judge.request(api.PRODUCE, version, seed)
        acks = judge.number("request", api.PRODUCE, version, "acks", frame)
        assert produce.acks(frame, body, len(frame), version) == acks


@pytest.mark.parametrize("version", served(api.JOIN_GROUP))
def test_session_timeout_is_that_kafka_wrote(judge: Judge, version: int) -> None:
    for timeout in (1, 45_000):
        frame, body = judge.request(api.JOIN_GROUP, version, timeout)
        frame = judge.frame("set", "request", api.JOIN_GROUP, version, "sessionTimeoutMs", timeout, frame)
        assert groups.session_timeout_ms(frame, body, len(frame), version) == timeout


def _metadata(frame: bytes, version: int) -> bytes:
    rewritten = metadata.rewrite_head(frame, version, hide_odd)
    assert rewritten is not None
    return rewritten[1] + frame[rewritten[0] :]


REWRITERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    api.METADATA: _metadata,
    api.DESCRIBE_CLUSTER: lambda frame, version: addresses.rewrite_describe_cluster(frame, version, hide_odd),
    api.PRODUCE: lambda frame, version: produce.read_response(frame, version, hide_odd)[0],
}


@pytest.mark.parametrize(("api_key", "version"), [(key, v) for key in REWRITERS for v in served(key)])
def test_rewritten_responses_are_kafkas(judge: Judge, api_key: int, version: int) -> None:
    for seed in SEEDS:
        frame = judge.response(api_key, version, seed)
        if api_key == api.DESCRIBE_CLUSTER and version >= 1:
            frame = _with_brokers(frame)
        assert REWRITERS[api_key](frame, version) == judge.frame("move", api_key, version, frame), seed


def _with_brokers(frame: bytes) -> bytes:
    """The endpoint type set to 1: it is a byte, and stands behind the message."""
    pos = 4 + 4 + 1 + 4 + 2
    text = frame[pos]
    assert text < 128 or frame[pos + 1] < 128
    size, after = (text, pos + 1) if text < 128 else (text & 127 | frame[pos + 1] << 7, pos + 2)
    at = after + max(size - 1, 0)
    return frame[:at] + b"\x01" + frame[at + 1 :]


@pytest.mark.parametrize("version", served(api.FIND_COORDINATOR))
def test_coordinators_can_be_read_by_kafka(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame = judge.response(api.FIND_COORDINATOR, version, seed)
        rewritten = addresses.rewrite_find_coordinator(frame, version, hide_odd)
        if version < 4:
            node_id = judge.number("response", api.FIND_COORDINATOR, version, "nodeId", frame)
            error = judge.number("response", api.FIND_COORDINATOR, version, "errorCode", frame)
            moved = node_id if (error and node_id < 0) or node_id % 2 == 0 else -1
            assert judge.number("response", api.FIND_COORDINATOR, version, "nodeId", rewritten) == moved
        # Whether it can be read at all, to its last byte.
        judge.frame("set", "response", api.FIND_COORDINATOR, version, "throttleTimeMs", 0, rewritten)


@pytest.mark.parametrize("version", served(api.API_VERSIONS))
def test_cut_ranges_can_be_read_by_kafka(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame = judge.response(api.API_VERSIONS, version, seed)
        frame = judge.frame("set", "response", api.API_VERSIONS, version, "errorCode", 0, frame)
        rewritten = api_versions.rewrite(frame, version)
        assert judge.number("response", api.API_VERSIONS, version, "errorCode", rewritten) == 0


WALKS: Final[dict[int, Callable[[int, int], Walk]]] = {
    api.FETCH: FetchWalk,
    api.SHARE_FETCH: lambda version, length: ShareWalk(api.SHARE_FETCH, version, length),
    api.SHARE_ACKNOWLEDGE: lambda version, length: ShareWalk(api.SHARE_ACKNOWLEDGE, version, length),
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("api_key", "version"), [(key, v) for key in WALKS for v in served(key)])
def test_walked_responses_differ_in_addresses_alone(
    judge: Judge, api_key: int, version: int, seed: int
) -> None:
    frame = judge.response(api_key, version, seed)
    sent = relay(WALKS[api_key](version, len(frame) - 4), frame, [100 + seed, 3, 50] * 20, hide_odd)
    before, rest_before = judge.ask("nodes", api_key, version, frame).split(" ")
    after, rest_after = judge.ask("nodes", api_key, version, sent).split(" ")
    assert rest_after == rest_before
    if api_key == api.FETCH and version < 16:
        assert sent == frame
        return
    ids = [int(node.split("@")[0]) for node in before.split(",") if node]
    moved = [f"{node_id}@proxy.example:{1000 + node_id % 1000}" for node_id in ids if node_id % 2 == 0]
    assert after in ("", ",".join(moved))


@pytest.mark.parametrize("version", served(DESCRIBE_CONFIGS))
def test_configs_without_addresses_stay_as_kafka_wrote_them(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame = judge.response(DESCRIBE_CONFIGS, version, seed)
        assert addresses.configs_without_addresses(frame, version) == frame


def test_voters_that_lost_their_listeners_can_be_read_by_kafka(judge: Judge) -> None:
    for seed in SEEDS:
        frame = judge.response(api.DESCRIBE_QUORUM, 2, seed)
        without = addresses.quorum_without_addresses(frame, 2)
        judge.number("response", api.DESCRIBE_QUORUM, 2, "errorCode", without)
        assert addresses.quorum_without_addresses(without, 2) == without
