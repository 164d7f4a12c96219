"""PROXY headers, whole, cut and wrong."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.net.proxy_header import V1_BYTES_MAX, V2_BYTES_MAX, ProxyHeader, ProxyHeaderError, parse

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4 = bytes((192, 0, 2, 7, 127, 0, 0, 1)) + struct.pack(">HH", 5678, 9092)
V6 = bytes.fromhex("20010db8000000000000000000000001" + "00" * 15 + "01") + struct.pack(">HH", 5678, 9092)


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


HEADERS = [
    (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", ("192.0.2.1", 56324)),
    (b"PROXY TCP6 2001:DB8::1 ::1 1 2\r\n", ("2001:db8::1", 1)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    (v2(0x21, 0x11, V4), ("192.0.2.7", 5678)),
    (v2(0x21, 0x21, V6), ("2001:db8::1", 5678)),
    (v2(0x21, 0x11, V4 + b"\x03\x00\x04abcd"), ("192.0.2.7", 5678)),
    (v2(0x20, 0x00, b""), None),
    (v2(0x20, 0x11, V4), None),
    (v2(0x21, 0x00, b"tlv"), None),
    (v2(0x21, 0x31, bytes(216)), None),
    (v2(0x21, 0x11, V4 + bytes(V2_BYTES_MAX - 28)), ("192.0.2.7", 5678)),
]


@pytest.mark.parametrize(("header", "source"), HEADERS)
def test_whole_header_is_read_and_no_more_than_it(header: bytes, source: tuple[str, int] | None) -> None:
    assert parse(header) == ProxyHeader(len(header), source)
    assert parse(header + b"\0\0\0\x20") == ProxyHeader(len(header), source)


@pytest.mark.parametrize(("header", "source"), HEADERS)
def test_cut_header_is_waited_for(header: bytes, source: tuple[str, int] | None) -> None:
    assert all(parse(header[:at]) is None for at in range(len(header)))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x20", b"PROXZ", b"GET / HTTP/1.1", b"\r\n\r\n\r", b"proxy TCP4",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 65536\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 +1 443\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 1 443 \r\n",
        b"PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 nobody 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 192.0.2.1 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 \xff\xff 192.0.2.1 1 2\r\n",
        b"PROXY " + b"x" * (V1_BYTES_MAX - 6),
        b"PROXY UNKNOWN " + b"x" * V1_BYTES_MAX + b"\r\n",
        v2(0x11, 0x11, V4), v2(0x22, 0x11, V4), v2(0x21, 0x12, V4), v2(0x21, 0x11, V4[:11]), v2(0x21, 0x21, V4),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, V2_BYTES_MAX - 15),
    ],
)  # fmt: skip
def test_invalid_proxy_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse(data)


@st.composite
def with_a_wrong_byte(draw: st.DrawFn) -> bytes:
    header = bytearray(draw(st.sampled_from(HEADERS))[0])
    header[draw(st.integers(0, len(header) - 1))] = draw(st.integers(0, 255))
    return bytes(header)


@given(
    st.binary(max_size=300)
    | st.builds(bytes.__add__, st.sampled_from([b"PROXY ", SIGNATURE]), st.binary(max_size=300))
    | with_a_wrong_byte()
)
def test_any_bytes_are_a_header_or_incomplete_or_refused(data: bytes) -> None:
    try:
        found = parse(data)
    except ProxyHeaderError:
        return
    assert found is None or 0 < found.length <= len(data)
    # To wait for ever is impossible: with as many bytes as a header may have it is told what they are.
    if found is None:
        assert len(data) < V2_BYTES_MAX
