"""Bytes that no Kafka peer would send: a WireError or a response, never anything else, and never without end."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import header, throttle
from protocol.api import MAX_VERSION, SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.errors import WireError
from protocol.messages import addresses, api_versions, fetch, groups, metadata, produce, telemetry
from protocol.messages.fetch_session import SessionTable
from protocol.walks.fetch import FetchWalk, first_batch_bytes
from protocol.walks.share import ShareWalk
from tests.support.pushes import push_body
from tests.unit.protocol.kafka_frames import hide_odd, rewrite_produce
from tests.unit.protocol.relay import relay

FEW = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))

# Small numbers and zeros look like lengths and counts that could be, and lead further than noise does.
NOISE = st.binary(max_size=80) | st.lists(
    st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 128, 255]), max_size=120
).map(bytes)


def framed(noise: bytes) -> bytes:
    return len(noise).to_bytes(4, "big") + noise


def session(noise: bytes, version: int) -> Any:
    fields = fetch.FetchFields(-1, 0, 0, 0, 9, 5, 0, 0, 0)
    table = SessionTable(1)
    table.respond_locally("b", fields, noise, 0, version, 0)
    return table.forward("b", fields, noise, 0, version, 0)


# Each takes noise and a version it may be asked for.
READERS: dict[str, tuple[int, Callable[[bytes, int], Any]]] = {
    "api_versions": (5, lambda n, v: api_versions.rewrite(framed(n), v)),
    "describe_cluster": (2, lambda n, v: addresses.rewrite_describe_cluster(framed(n), v, hide_odd)),
    "find_coordinator": (6, lambda n, v: addresses.rewrite_find_coordinator(framed(n), v, hide_odd)),
    "metadata": (13, lambda n, v: metadata.rewrite_head(framed(n), v, hide_odd)),
    "metadata_prefix": (13, lambda n, v: metadata.rewrite_head(n, v, hide_odd)),
    "produce": (13, lambda n, v: rewrite_produce(framed(n), v, hide_odd, 5)),
    "acks": (13, lambda n, v: produce.acks(n, 0, len(n), v)),
    "fetch": (18, lambda n, v: fetch.read_request(n, 0, len(n), v)),
    "topics": (18, lambda n, v: fetch.full_topics(n, 0, v)),
    "session": (11, lambda n, v: session(n, v + 7)),
    "groups": (9, lambda n, v: groups.session_timeout_ms(n, 0, len(n), v)),
    "telemetry": (4, lambda n, v: telemetry.throttle_times(b"\0" + push_body(n, v), 0, 29 + len(n))),
    "client_id": (0, lambda n, _: header.client_id(n, 0, len(n))),
    "fetch_walk": (18, lambda n, v: relay(FetchWalk(v, len(n)), framed(n), [5] * 9, hide_odd)),
    "first_batch": (18, lambda n, v: first_batch_bytes(bytearray(framed(n)), 0, len(n) + 4, v)),
    "share_fetch": (
        1,
        lambda n, v: relay(ShareWalk(SHARE_FETCH, v + 1, len(n)), framed(n), [5] * 9, hide_odd),
    ),
    "share_acknowledge": (
        1,
        lambda n, v: relay(ShareWalk(SHARE_ACKNOWLEDGE, v + 1, len(n)), framed(n), [5] * 9, hide_odd),
    ),
}


@pytest.mark.parametrize("reader", READERS)
@FEW
@given(noise=NOISE, data=st.data())
def test_noise_gives_a_wire_error_or_a_response(reader: str, noise: bytes, data: st.DataObject) -> None:
    newest, read = READERS[reader]
    with suppress(WireError):
        read(noise, data.draw(st.integers(0, newest)))


@FEW
@given(
    noise=NOISE,
    api_key=st.integers(-1, 100),
    version=st.integers(-2, 20),
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_throttle_time_goes_into_noise_or_a_wire_error_comes_out(
    noise: bytes, api_key: int, version: int, throttle_ms: int
) -> None:
    frame = bytearray(framed(noise))
    try:
        patched = throttle.patch(frame, api_key, version, throttle_ms)
    except WireError:
        assert frame == framed(noise)
        return
    assert len(frame) == len(noise) + 4
    if not patched:
        assert frame == framed(noise)


@FEW
@given(noise=NOISE, api_key=st.sampled_from(sorted(MAX_VERSION)), version=st.integers(-2, 20))
def test_body_start_lies_within_the_noise(noise: bytes, api_key: int, version: int) -> None:
    frame = framed(noise)
    try:
        start = header.body_start(frame, 0, len(frame), api_key, version)
    except WireError:
        return
    assert start is None or start <= len(frame)
