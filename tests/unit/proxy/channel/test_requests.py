"""What passes from client to broker, how a frame may be cut, and every way in which a client can be wrong."""

import struct
from typing import Final

import pytest

from protocol.api import API_NAMES
from proxy.channel.verdict import IN_FLIGHT_MAX
from tests.support.frames import LIST_OFFSETS, frame, produce, request, some_response
from tests.support.playbook import FRAME_BYTES_MAX, Ends, More, Pass, Passthrough, Wait, playbook

NEVER_ASKED = 32000


def test_pipelined_requests_and_responses_pass_in_one_order() -> None:
    talk = playbook()
    talk.asks(0, b"".join(request(LIST_OFFSETS, 7, size=100, correlation_id=number) for number in range(5)))
    talk.responds(0, b"".join(some_response(30 + number, correlation_id=number) for number in range(5)))


def test_next_frame_is_read_where_an_unseen_payload_ends() -> None:
    talk = playbook()
    first, second = produce(9, 1_000), request(LIST_OFFSETS, 7, size=100, correlation_id=2)
    talk.client(0, first[:60], Pass(first[:60]), Passthrough(1_004 - 60))
    talk.asks(0, first[60:] + second)


@pytest.mark.parametrize("cut", range(1, 14))
def test_cut_header_is_kept_until_it_is_whole(cut: int) -> None:
    talk = playbook()
    asked = request(LIST_OFFSETS, 7, size=100)
    talk.client(0, asked[:cut], More(14))
    talk.client(0, asked[cut:], Pass(asked))


def test_null_client_id_is_the_empty_one() -> None:
    talk = playbook(producer_default=1000)
    talk.asks(0, request(LIST_OFFSETS, 7, client_id=None, size=100))
    assert talk.engine.client("ANONYMOUS", "", 1).produce.flows == 1


def test_each_request_counts_for_the_client_id_it_names() -> None:
    talk = playbook()
    talk.asks(
        0, produce(9, 100, client_id="a") + produce(9, 300, client_id="b") + produce(9, 100, client_id="a")
    )
    counted = {view.client_id: view.bytes_total for view in talk.engine.views(0) if view.bytes_total}
    assert counted == {"a": 100 + 100, "b": 300}


@pytest.mark.parametrize("key", sorted(set(API_NAMES) - {0, 1, 3, 10, 17, 18, 32, 36, 55, 60, 78, 79}))
def test_known_api_of_any_version_passes(key: int) -> None:
    talk = playbook()
    talk.asks(0, request(key, NEVER_ASKED, size=400))


def test_unknown_apis_are_counted_as_one() -> None:
    talk = playbook(gateway=False)
    talk.asks(0, request(999, 0, size=50) + request(-5, 0, size=50))
    assert talk.stats.requests[-1] == 2


def test_longest_frame_passes() -> None:
    talk = playbook()
    head = struct.pack(">ihhih", FRAME_BYTES_MAX, LIST_OFFSETS, 7, 1, 0)
    talk.client(0, head, Pass(head), Passthrough(FRAME_BYTES_MAX - 10))


ENDS: Final = {
    "unknown API": (request(999, 0, size=50), "unknown_api"),
    **{
        f"version that was not promised: {API_NAMES[key]}": (
            request(key, NEVER_ASKED, size=400),
            "unsupported_version",
        )
        for key in (0, 1, 3, 10, 60, 78, 79)
    },
    **{
        f"length {length}": (struct.pack(">i", length), "frame_length")
        for length in (-1, -(2**31), 0, 9, FRAME_BYTES_MAX + 1, 2**31 - 1)
    },
    "client id longer than its frame": (struct.pack(">ihhih", 20, LIST_OFFSETS, 7, 1, 30), "malformed"),
    "client id of a length below null": (frame(struct.pack(">hhih", LIST_OFFSETS, 7, 1, -2)), "malformed"),
    "Produce without its acks": (request(0, 9, b"\0\xff"), "malformed"),
    # A compact string of 1,000,000 bytes; Kafka's strings have at most 32,767.
    "endless transactional id": (request(0, 9, b"\xc1\x84\x3d", size=1_000_100)[:200_000], "malformed"),
    "Fetch without its fields": (request(1, 4, b"\0\0\0\1"), "malformed"),
    "HTTP GET": (b"GET / HTTP/1.1\r\n", "http_request"),
    "HTTP POST": (b"POST /metrics HTTP/1.1\r\n", "http_request"),
    "HTTP 2": (b"PRI * HTTP/2.0\r\n", "http_request"),
    "TLS hello": (bytes.fromhex("160301020001000200fc0303"), "tls_hello"),
}


@pytest.mark.parametrize(("sent", "cause"), ENDS.values(), ids=ENDS)
def test_wrong_bytes_end_the_connection(sent: bytes, cause: str) -> None:
    playbook(consumer_default=1000).client(0, sent, Ends(cause))


def test_control_message_larger_than_is_kept_ends_the_connection() -> None:
    talk = playbook(consumer_default=1000, frame_bytes_max=2**30)
    talk.client(0, struct.pack(">ihhih", 17 * 1024 * 1024, 1, 4, 1, 0), Ends("frame_length"))


def test_wrong_bytes_behind_a_good_request_end_the_connection() -> None:
    talk = playbook()
    talk.asks(0, request(LIST_OFFSETS, 7, size=100))
    talk.client(0, b"\xff\xff\xff\xff", Ends("frame_length"))


def test_client_with_too_many_requests_on_their_way_waits_for_a_response() -> None:
    talk = playbook()
    asked = b"".join(request(LIST_OFFSETS, 7, correlation_id=number) for number in range(IN_FLIGHT_MAX))
    one_more, another = (request(LIST_OFFSETS, 7, correlation_id=number) for number in (-1, -2))
    talk.client(0, asked + one_more + another, Pass(asked), Wait(0))
    talk.responds(1, some_response(correlation_id=0))
    talk.client(1, b"", Pass(one_more), Wait(0))


def test_channel_that_is_to_end_takes_no_further_request_and_finishes_with_its_last_response() -> None:
    talk = playbook()
    asked = request(LIST_OFFSETS, 7, size=100)
    talk.asks(0, asked)
    talk.channel.end_intake()
    talk.client(0, asked, Wait(0))
    assert not talk.channel.idle()
    talk.responds(1, some_response())
    assert talk.channel.idle()


def test_many_client_ids_on_one_connection_are_forgotten_in_time() -> None:
    talk = playbook(producer_default=1e9)
    for number in range(100):
        talk.asks(0, produce(9, 100, client_id=f"client-{number}", acks=0))
    flows = sum(talk.engine.client("ANONYMOUS", f"client-{n}", 1).produce.flows for n in range(100))
    assert flows <= 32
