"""Whole conversations as packets -> rows and counts, with each defect that a capture may have, counted exactly."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from offline.imports.packets import ACK, LinkTypeError
from protocol.api import API_VERSIONS, CREATE_TOPICS, MAX_VERSION, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.batches import batch
from tests.support.frames import (
    api_versions,
    fetch,
    fetched_from,
    filler,
    frame,
    heartbeat,
    produce_response,
    produce_to,
    some_response,
    topic_id,
)
from tests.support.hellos import hello
from tests.support.packets import BEGIN_US, Caught, Talk, ethernet, read, tcp
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, framed
from tests.unit.protocol.kafka_frames import struct as entry

SIZES = [20_000, 300, 5000]
BEAT = heartbeat(correlation_id=4)
# Ethernet, IPv4, TCP.
HEADERS = 14 + 20 + 20


def talk(**options: object) -> Talk:
    """ApiVersions, three Produces, a Heartbeat, a Fetch of 30 kB."""
    said = Talk(**options).open()  # type: ignore[arg-type]  # as it says
    said.ask(api_versions(correlation_id=0), some_response(40, correlation_id=0))
    for number, size in enumerate(SIZES, 1):
        asked = produce_to(9, {"t": [size, 10]}, correlation_id=number)
        said.ask(asked, produce_response(9, correlation_id=number, throttle_ms=10 * number))
    said.ask(BEAT, some_response(10, correlation_id=4))
    said.ask(fetch(12, correlation_id=5), fetched_from(12, {"t": [30_000]}, correlation_id=5))
    return said.close()


def test_rows_of_a_whole_conversation() -> None:
    found = read(talk().caught())
    rows = [one for _, one in found.requests]
    assert [one.seq for one in rows] == [0, 1, 2, 3, 4, 5]
    assert [one.api_key for one in rows] == [18, 0, 0, 0, 12, 1]
    assert {one.client_id for one in rows} == {"a"}
    assert {one.principal for one in rows} == {"ANONYMOUS"}
    assert [one.throttle_ms for one in rows][1:4] == [10, 20, 30]
    produced = produce_to(9, {"t": [20_000, 10]}, correlation_id=1)
    assert rows[1].request_bytes == len(produced) - 4
    assert rows[1].partitions == [(b"t", 0, 20_000, -1), (b"t", 1, 10, -1)]  # filler is no record batch
    fetched = fetched_from(12, {"t": [30_000]}, correlation_id=5)
    assert (
        rows[5].response_bytes == len(fetched) - 4 - 1
    )  # without the tags of the header, as Kafka charges it
    assert rows[5].partitions == [(b"t", 0, 30_000, -1)]
    assert {one.upstream_us for one in rows} == {1000}
    # Three packets of the handshake, the first request one millisecond later.
    assert rows[0].time_us == BEGIN_US + 4000
    totals = found.totals
    assert (totals.connections, totals.kafka, totals.requests) == (1, 1, 6)
    assert totals.payload == sum(len(packet.data) - HEADERS for packet in talk().caught())
    assert (totals.lost, totals.retransmitted, totals.cut, totals.unread, totals.unanswered) == (0,) * 5
    assert (totals.cut_start, totals.cut_end) == (0, 0)


def data_of(packets: Sequence[Caught], way: int | None = None) -> list[int]:
    """The indices of packets with payload; of one direction: 0 from the client."""
    server = bytes((10, 0, 0, 2))
    return [
        number
        for number, packet in enumerate(packets)
        if len(packet.data) > HEADERS and way in (None, packet.data[26:30] == server)
    ]


def payload(packet: Caught) -> int:
    return packet.wire_bytes - HEADERS


def without(packets: Sequence[Caught], *left_out: int) -> list[Caught]:
    return [packet for number, packet in enumerate(packets) if number not in left_out]


WHOLE = read(talk().caught()).tuples()


# Order, and what comes twice.


def test_retransmissions_are_counted_and_change_nothing() -> None:
    packets = talk().caught()
    twice = data_of(packets)[3]
    found = read([*packets[: twice + 4], packets[twice], *packets[twice + 4 :]])
    assert found.totals.retransmitted == payload(packets[twice]) == 1448
    assert found.tuples() == WHOLE


def test_packets_out_of_order_are_put_in_order() -> None:
    packets = talk().caught()
    at = data_of(packets)[3]
    packets[at : at + 3] = packets[at : at + 3][::-1]
    found = read(packets)
    assert found.tuples() == WHOLE
    assert (found.totals.retransmitted, found.totals.lost) == (0, 0)


def test_overlapping_segments_count_their_new_bytes_once() -> None:
    """The second of three packets comes once more, from 100 bytes before it to 50 bytes into the third."""
    said = talk()
    times_packets = said.packets
    first = next(number for number, (_, packet) in enumerate(times_packets) if len(packet) == 40 + 1448)
    (time_us, one), (_, two), (_, three) = times_packets[first : first + 3]
    sequence = struct.unpack_from(">I", two, 24)[0] - 100
    over = one[-100:] + two[40:] + three[40:90]
    acknowledged = struct.unpack_from(">I", two, 28)[0]
    overlap = tcp(said.client, said.server, sequence, acknowledged, ACK, over)
    packets = [*times_packets[: first + 1], (time_us, overlap), *times_packets[first + 2 :]]
    found = read([Caught(at, ethernet(packet), 14 + len(packet)) for at, packet in packets])
    assert found.tuples() == WHOLE
    assert found.totals.retransmitted == 100 + 50
    assert found.totals.lost == 0


def test_a_response_captured_before_its_request_waits_for_it() -> None:
    packets = talk().caught()
    beat = next(number for number, packet in enumerate(packets) if packet.data.endswith(BEAT))
    packets[beat], packets[beat + 1] = packets[beat + 1], packets[beat]
    found = read(packets)
    assert [row[:-6] for row in found.tuples()] == [row[:-6] for row in WHOLE]
    assert (found.totals.stray_responses, found.totals.unanswered, found.totals.lost) == (0, 0, 0)


# Losses.


def test_a_loss_within_records_is_counted_and_changes_no_row() -> None:
    packets = talk().caught()
    lost = data_of(packets)[8]  # in the middle of the first Produce
    found = read(without(packets, lost))
    assert found.totals.lost == payload(packets[lost]) == 1448
    assert found.totals.out_of_step == 0
    assert found.tuples() == WHOLE


def test_a_loss_of_a_frames_beginning_loses_its_request_alone() -> None:
    packets = talk().caught()
    lost = data_of(packets)[2]  # the first packet of the first Produce, with its header
    found = read(without(packets, lost))
    assert found.totals.lost == 1448
    assert found.totals.out_of_step == 1
    assert found.totals.unread == len(produce_to(9, {"t": [20_000, 10]}, correlation_id=1))
    assert found.totals.stray_responses == 1
    assert [one.correlation_id for _, one in found.requests] == [0, 2, 3, 4, 5]
    assert {one.principal for _, one in found.requests} == {"ANONYMOUS", ""}  # it may have been a login


def test_a_lost_response_leaves_its_request_without_one() -> None:
    packets = talk().caught()
    beat = next(number for number, packet in enumerate(packets) if packet.data.endswith(BEAT))
    found = read(without(packets, beat + 1))
    assert found.totals.lost == len(some_response(10))
    assert found.totals.unanswered == 1
    row = next(one for _, one in found.requests if one.correlation_id == 4)
    assert (row.response_bytes, row.upstream_us) == (-1, -1)
    assert found.totals.requests == 6


def test_a_loss_between_partitions_is_in_the_rest_of_the_frame() -> None:
    """Two partitions of 3000 bytes in packets of 1448: the third packet has the second partition's header."""
    produced = produce_to(9, {"t": [3000, 3000]})
    packets = Talk().open().ask(produced, produce_response(9)).caught()
    first = data_of(packets)[0]
    found = read(without(packets, first + 2))
    ((_, row),) = found.requests
    assert row.request_bytes == len(produced) - 4
    assert row.partitions[0] == (b"t", 0, 3000, -1)
    # The second partition, and the tags that end the topic and the request: index, length, records, three tags.
    assert row.partitions[1:] == [(b"", -1, 1 + 4 + 2 + 3000 + 3, -1)]
    assert found.totals.out_of_step == 0


def test_a_loss_at_the_end_of_the_capture_is_known_from_its_acknowledgment() -> None:
    packets = Talk().open().ask(heartbeat(), some_response(30)).caught()
    packets.append(Caught(packets[-1].time_us + 1, *ack_of(packets[-1])))
    found = read(without(packets, len(packets) - 2))
    assert found.totals.lost == 34
    assert found.totals.unanswered == 1


def ack_of(packet: Caught) -> tuple[bytes, int]:
    """An acknowledgment of this packet from the server."""
    sequence, acknowledged = struct.unpack_from(">II", packet.data, 14 + 24)
    frame_bytes = ethernet(
        tcp(("10.0.0.1", 40_000), ("10.0.0.2", 9092), acknowledged, sequence + payload(packet), ACK)
    )
    return frame_bytes, len(frame_bytes)


# Cut at either end.


def test_a_conversation_cut_at_its_start_is_read_from_its_next_request() -> None:
    packets = talk().caught()
    begin = data_of(packets)[9]  # in the middle of the first Produce
    found = read(packets[begin:])
    assert (found.totals.kafka, found.totals.cut_start, found.totals.cut_end) == (1, 1, 0)
    assert [one.correlation_id for _, one in found.requests] == [2, 3, 4, 5]
    assert {one.principal for _, one in found.requests} == {""}  # nothing tells who it is
    assert found.totals.lost == 0
    expected = [replace_principal(row) for row in WHOLE[2:]]
    assert [row[2:] for row in found.tuples()] == [row[2:] for row in expected]


def replace_principal(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple("" if value == "ANONYMOUS" else value for value in row)


def test_a_response_to_a_request_before_the_capture_is_passed_over() -> None:
    packets = talk().caught()
    begin = data_of(packets, 1)[1]  # the response to the first Produce
    found = read(packets[begin:])
    assert [one.correlation_id for _, one in found.requests] == [2, 3, 4, 5]
    assert found.totals.unanswered == 0


def test_a_conversation_cut_at_its_end_keeps_what_was_asked() -> None:
    packets = talk().caught()
    end = data_of(packets, 0)[-1] + 4  # within the response to the Fetch
    found = read(packets[:end])
    assert (found.totals.cut_start, found.totals.cut_end, found.totals.lost) == (0, 1, 0)
    row = found.requests[-1][1]
    assert row.response_bytes == len(fetched_from(12, {"t": [30_000]})) - 5  # its length is in its head
    assert row.partitions == [(b"t", 0, 30_000, -1)]


def test_a_request_cut_at_the_end_has_no_response() -> None:
    packets = talk().caught()
    end = data_of(packets, 0)[5]  # within the first Produce
    found = read(packets[:end])
    row = found.requests[-1][1]
    assert (row.request_bytes, row.response_bytes) == (len(produce_to(9, {"t": [20_000, 10]})) - 4, -1)
    assert found.totals.unanswered == 1


# Only the beginnings of packets.


def test_sizes_are_known_where_only_the_beginnings_of_packets_were_captured() -> None:
    """128 bytes of each: 74 of payload, so every request's header is whole, and most records are not."""
    packets = talk().caught()
    found = read([packet.cut(128) for packet in packets])
    sizes = [row[5:7] + row[10:11] for row in found.tuples()]
    assert sizes == [row[5:7] + row[10:11] for row in WHOLE]  # request and response bytes
    assert found.totals.cut == sum(max(payload(packet) - 74, 0) for packet in packets)
    assert (found.totals.lost, found.totals.out_of_step, found.totals.unanswered) == (0, 0, 0)
    assert [
        sum(entry[2] for entry in one.partitions) > 0 for _, one in found.requests if one.api_key < 2
    ] == [True] * 4


def test_a_client_id_that_is_cut_off_is_no_client_id() -> None:
    """76 bytes of each packet: 22 of payload, of which 14 are before the client id."""
    said = Talk().open()
    for number, name in enumerate(("a-long-client-id", "short", "a-long-client-id"), 1):
        said.ask(
            produce_to(9, {"t": [500]}, correlation_id=number, client_id=name),
            produce_response(9, correlation_id=number),
        )
    found = read([packet.cut(76) for packet in said.caught()])
    assert [one.client_id for _, one in found.requests] == ["", "short", ""]
    assert found.totals.client_ids_cut == 2
    assert [one.request_bytes for _, one in found.requests] == [
        len(produce_to(9, {"t": [500]}, client_id=name)) - 4 for name in ("a" * 16, "short", "a" * 16)
    ]


def test_a_client_id_that_is_cut_off_is_that_of_the_same_connection_if_it_begins_alike() -> None:
    said = Talk().open()
    for number in (1, 2):
        asked = produce_to(9, {"t": [500]}, correlation_id=number, client_id="a-long-client-id")
        said.ask(asked, produce_response(9, correlation_id=number))
    packets = said.caught()
    second = data_of(packets)[2]
    found = read([*packets[:second], packets[second].cut(76), *packets[second + 1 :]])
    assert [one.client_id for _, one in found.requests] == ["a-long-client-id"] * 2


def test_headers_that_are_cut_off_have_no_row() -> None:
    """The first request is whole; of the others 8 bytes are captured, which tell their length alone."""
    packets = talk().caught()
    second = data_of(packets)[2]
    found = read([*packets[:second], *(packet.cut(HEADERS + 8) for packet in packets[second:])])
    assert found.totals.requests == 1
    assert found.totals.headers_cut == 5
    assert found.totals.stray_responses == 5
    assert found.totals.out_of_step == 0


def test_packets_cut_within_their_headers_are_counted() -> None:
    packets = [packet.cut(40) for packet in talk().caught()]
    found = read(packets)
    assert found.skipped == {"cut within their headers": len(packets)}


# Link layers.


@pytest.mark.parametrize(
    ("link_type", "wrap"),
    [
        (0, lambda packet: b"\x02\0\0\0" + packet),
        (12, lambda packet: packet),
        (101, lambda packet: packet),
        (108, lambda packet: b"\0\0\0\x02" + packet),
        (113, lambda packet: bytes(14) + b"\x08\0" + packet),
        (113, lambda packet: bytes(14) + b"\x81\0\0\x07\x08\0" + packet),
        (228, lambda packet: packet),
        (276, lambda packet: b"\x08\0" + bytes(18) + packet),
        (276, lambda packet: b"\x81\0" + bytes(18) + b"\0\x07\x08\0" + packet),
        (1, lambda packet: ethernet(packet, [7])),
        (1, lambda packet: ethernet(packet, [7, 8])),
        (1, lambda packet: ethernet(packet) + bytes(6)),  # the padding of a short frame
    ],
    ids=[
        "null",
        "raw",
        "raw-file",
        "loop",
        "sll",
        "sll-vlan",
        "ipv4",
        "sll2",
        "sll2-vlan",
        "vlan",
        "qinq",
        "padded",
    ],
)
def test_link_layers_are_unwrapped(link_type: int, wrap: Callable[[bytes], bytes]) -> None:
    packets = [(time_us, wrap(packet)) for time_us, packet in talk().packets]
    found = read([Caught(time_us, data, len(data)) for time_us, data in packets], link_type=link_type)
    assert found.tuples() == WHOLE


def test_a_link_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(LinkTypeError, match="link type 127"):
        read([], link_type=127)


def test_ipv6_with_extension_headers() -> None:
    def extended(packet: bytes) -> bytes:
        """Hop-by-hop options of 8 bytes, destination options of 16, then TCP."""
        options = b"\x3c\0" + bytes(6) + b"\x06\x01" + bytes(14)
        length = struct.unpack_from(">H", packet, 4)[0] + len(options)
        return packet[:4] + struct.pack(">HB", length, 0) + packet[7:40] + options + packet[40:]

    said = talk(client=("2001:db8::1", 40_000), server=("2001:db8::2", 9092))
    found = read(said.caught())
    assert found.tuples() == WHOLE
    packets = [(time_us, ethernet(extended(packet))) for time_us, packet in said.packets]
    assert read([Caught(time_us, data, len(data)) for time_us, data in packets]).tuples() == WHOLE


def test_packets_that_the_network_card_cuts_later_have_the_length_of_the_capture() -> None:
    """The length in the IP header is 0 where a packet exceeds 64 KiB, or the card computes it."""
    said = talk(mss=20_000)
    packets = [(time_us, packet[:2] + b"\0\0" + packet[4:]) for time_us, packet in said.packets]
    caught = [Caught(time_us, ethernet(packet), 14 + len(packet)) for time_us, packet in packets]
    assert read(caught).tuples() == WHOLE


def test_what_is_no_tcp_is_counted_and_left_out() -> None:
    packet = bytearray(talk().packets[3][1])
    fragment, datagram, damaged = (bytearray(packet) for _ in range(3))
    fragment[6] = 0x20
    datagram[9] = 17
    damaged[32] = 0x10  # a TCP header of 4 bytes
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    frames = [*(ethernet(bytes(each)) for each in (fragment, datagram, damaged)), arp, b"", b"\0" * 14]
    found = read([Caught(BEGIN_US, data, len(data)) for data in frames])
    assert found.skipped == {"fragments": 1, "other protocols": 4, "damaged": 1}
    assert found.totals.connections == 0


# Which connections are Kafka's.


def test_tls_is_recognised_and_left_out() -> None:
    said = Talk().open().say(0, hello(b"kafka.test")).say(1, b"\x16\x03\x03\0\x7a" + filler(122))
    said.say(0, b"\x17\x03\x03\x01\0" + filler(256))
    found = read([*said.close().caught(), *talk(client=("10.0.0.3", 40_000)).caught()])
    assert (found.totals.tls, found.totals.kafka, found.totals.other) == (1, 1, 0)
    assert found.totals.requests == 6


def test_tls_without_its_beginning_is_recognised() -> None:
    said = Talk().say(0, b"\x17\x03\x03\x01\0" + filler(256)).say(1, b"\x17\x03\x03\0\x10" + filler(16))
    found = read(said.caught())
    assert (found.totals.tls, found.totals.kafka) == (1, 0)


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        struct.pack(">ii", 84, 196_608)
        + b"user\0postgres\0database\0postgres\0application_name\0psql\0\0".ljust(76),
        struct.pack(">HHHHHHH", 28, 1, 256, 1, 0, 0, 0) + b"\7example\3com\0\0\1\0\1",
        bytes(200),
        b"\xff" * 200,
    ],
    ids=["http", "ssh", "postgres", "dns", "zeros", "ones"],
)
def test_other_protocols_are_not_kafka(first: bytes) -> None:
    found = read(Talk().open().ask(first, first).ask(first, first).close().caught())
    assert (found.totals.other, found.totals.kafka, found.totals.tls) == (1, 0, 0)
    assert found.requests == []
    assert found.totals.unread == 0


@pytest.mark.parametrize("ports", [(), (9092,), (80, 9092)])
def test_the_client_is_the_side_that_asks_without_the_beginning_too(ports: Sequence[int]) -> None:
    said = Talk(client=("10.0.0.9", 1024)).ask(heartbeat(), some_response())
    swapped = Talk(client=("10.0.0.1", 65_000)).ask(heartbeat(), some_response())
    for one in (said, swapped):
        (row,) = read(one.caught(), ports=ports).requests
        assert row[1].response_bytes == 20


def test_other_ports_are_left_out_if_ports_are_given() -> None:
    packets = talk().caught()
    found = read(packets, ports=[9093])
    assert found.totals.other_ports == len(packets)
    assert found.totals.connections == 0


# Connections.


def test_a_reset_ends_a_connection() -> None:
    said = Talk().open().ask(heartbeat(), some_response()).say(0, heartbeat(correlation_id=2)).reset()
    found = read(said.caught())
    assert (found.totals.cut_end, found.totals.unanswered, found.totals.lost) == (0, 1, 0)


def test_a_port_that_is_used_again_is_another_connection() -> None:
    packets = talk().caught()
    later = [replace(packet, time_us=packet.time_us + 1_000_000) for packet in talk(numbers=[5, 6]).caught()]
    found = read([*packets, *later])
    assert (found.totals.connections, found.totals.requests, found.totals.cut_end) == (2, 12, 0)
    assert {number for number, _ in found.requests} == {1, 2}
    unfinished = read([*packets[:-3], *later])  # without FINs
    assert (unfinished.totals.connections, unfinished.totals.cut_end) == (2, 1)


def test_handshakes_that_repeat_and_late_packets_are_no_connections() -> None:
    packets = talk().caught()
    late = data_of(packets)[3]
    found = read([packets[0], *packets, packets[late], packets[-1]])
    assert found.tuples() == WHOLE
    assert found.totals.connections == 1


def test_a_connection_whose_syn_was_not_captured_begins_with_the_answer_to_it() -> None:
    found = read(talk().caught()[1:])
    assert found.tuples() == WHOLE
    assert found.totals.cut_start == 0


# Users.


def login(mechanism: str, *steps: tuple[bytes, bytes], version: int = 1, error_code: int = 0) -> Talk:
    """A SASL exchange with these tokens both ways, then a Heartbeat."""
    said = Talk().open()
    said.ask(
        framed(REQUESTS[SASL_HANDSHAKE][version](mechanism=mechanism)),
        framed(RESPONSES[SASL_HANDSHAKE][version](error_code=0, mechanisms=[mechanism])),
    )
    for token, answer in steps:
        if version == 0:
            said.ask(frame(token), frame(answer))
            continue
        said.ask(
            framed(REQUESTS[SASL_AUTHENTICATE][2](auth_bytes=token)),
            framed(
                RESPONSES[SASL_AUTHENTICATE][2](
                    error_code=error_code, error_message=None, auth_bytes=answer, session_lifetime_ms=0
                )
            ),
        )
    return said.ask(heartbeat(correlation_id=70), some_response(correlation_id=70))


PLAIN = ("PLAIN", (b"\0alice\0secret", b""))
SCRAM = (
    "SCRAM-SHA-512",
    (b"n,,n=alice,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"),
    (b"c=biws,r=abcdef,p=cHJvb2Y=", b"v=c2ln"),
)
GSSAPI = ("GSSAPI", (b"\x60first", b"answer"), (b"second", b"again"))
BEARER = ("OAUTHBEARER", (b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.\x01\x01", b""))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("exchange", "user"), [(PLAIN, "alice"), (SCRAM, "alice"), (GSSAPI, ""), (BEARER, "")]
)
def test_the_user_is_the_one_that_the_broker_has_accepted(
    exchange: tuple[object, ...], user: str, version: int
) -> None:
    found = read(login(*exchange, version=version).caught())  # type: ignore[arg-type]
    rows = [one for _, one in found.requests]
    assert rows[-1].correlation_id == 70
    assert rows[-1].principal == user
    assert rows[-1].response_bytes == 20
    tokens = len(exchange) - 1
    assert len(rows) == 2 + tokens * version  # tokens without a header are no requests
    assert found.totals.unanswered == 0


def test_a_user_that_is_refused_is_none() -> None:
    found = read(login(*PLAIN, error_code=58).caught())
    assert {one.principal for _, one in found.requests} == {"ANONYMOUS"}


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_login_of_which_something_is_missing_tells_no_user(lost: int) -> None:
    packets = login(*PLAIN).caught()
    found = read(without(packets, data_of(packets)[lost]))
    assert found.requests[-1][1].correlation_id == 70
    assert found.requests[-1][1].principal == ""


def test_a_login_on_a_connection_without_its_beginning_is_certain() -> None:
    packets = login(*SCRAM).caught()
    found = read(packets[3:])
    assert [one.principal for _, one in found.requests][-1] == "alice"


# Single fields.


def test_a_produce_without_a_response_is_complete_at_its_end() -> None:
    said = Talk().open()
    for number in (1, 2):
        said.say(0, produce_to(9, {"t": [5000]}, correlation_id=number, acks=0))
    said.ask(heartbeat(correlation_id=3), some_response(correlation_id=3))
    found = read(said.caught())
    rows = [one for _, one in found.requests]
    assert [one.response_bytes for one in rows] == [-1, -1, 20]
    assert rows[0].partitions == [(b"t", 0, 5000, -1)]
    assert found.totals.unanswered == 0


def test_records_are_counted_in_a_partition_with_one_batch() -> None:
    produced = produce_to(9, {"t": [2000]})
    at = produced.index(filler(2000))
    produced = produced[:at] + batch(7, 2000) + produced[at + 2000 :]
    ((_, row),) = read(Talk(mss=10).open().ask(produced, produce_response(9)).caught()).requests
    assert row.partitions == [(b"t", 0, 2000, 7)]


def test_partition_mutations_are_counted() -> None:
    topics = [
        entry(
            REQUESTS[CREATE_TOPICS],
            5,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        for name, partitions in (("a", 12), ("b", -1))
    ]
    asked = framed(REQUESTS[CREATE_TOPICS][5](topics=topics, timeout_ms=1, validate_only=False))
    ((_, row),) = read(Talk(mss=7).open().ask(asked, some_response(correlation_id=7)).caught()).requests
    assert row.mutations == 12 + 1  # the broker's default counts as one


def test_topics_by_id_have_the_names_that_metadata_tells() -> None:
    topic = entry(
        RESPONSES[METADATA],
        12,
        "MetadataResponseTopic",
        error_code=0,
        name="orders",
        topic_id=UUID(bytes=topic_id("orders")),
        is_internal=False,
        partitions=[],
    )
    told = framed(RESPONSES[METADATA][12](brokers=[], cluster_id="c", controller_id=1, topics=[topic]))
    asked = framed(REQUESTS[METADATA][12](topics=None))
    found = read(Talk().open().ask(asked, told).caught())
    assert found.names == {topic_id("orders"): "orders"}


def test_responses_are_matched_by_correlation_id() -> None:
    said = Talk().open()
    for number in range(5):
        said.say(0, heartbeat(correlation_id=100 + number))
    for number in range(5):
        said.say(1, some_response(30 + number, correlation_id=100 + number))
    assert [one.response_bytes for _, one in read(said.caught()).requests] == [30, 31, 32, 33, 34]


def test_a_client_of_a_later_release_is_recognised_by_its_first_question() -> None:
    """It asks with a version of ApiVersions that is not known here, and again with one that the broker knows."""
    latest = MAX_VERSION[API_VERSIONS]
    said = Talk().open().ask(api_versions(latest + 1, correlation_id=1), some_response(correlation_id=1))
    said.ask(api_versions(latest, correlation_id=2), some_response(correlation_id=2))
    found = read(said.caught())
    assert [one.api_version for _, one in found.requests] == [latest + 1, latest]
    assert read(said.caught()[3:]).totals.requests == 2  # without the connection's beginning too


def test_bytes_that_only_begin_like_a_request_do_not_end_the_search() -> None:
    """A packet ends within what looks like a client id, and goes on with bytes that no client id has."""
    alike = heartbeat(client_id="x" * 20)
    said = Talk().say(0, alike[:20]).say(0, bytes(500)).ask(heartbeat(), some_response())
    found = read(said.caught())
    assert [one.client_id for _, one in found.requests] == ["a"]
    assert (found.totals.kafka, found.totals.other) == (1, 0)
