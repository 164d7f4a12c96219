"""HTTP as bytes: what is taken, what is refused and with which status."""

import pytest

from proxy.admin.http import Page, RefusedError, Request, parse, write


@pytest.mark.parametrize(
    ("head", "meant"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", Request("GET", "/", "", False)),
        (b"GET /m?x=1 HTTP/1.1\r\nHost: h\r\nAccept: a/b\r\n\r\n", Request("GET", "/m", "a/b", False, "h", "x=1")),
        (b"HEAD / HTTP/1.1\r\nConnection: Close\r\n\r\n", Request("HEAD", "/", "", True)),
        (b"GET / HTTP/1.0\r\n\r\n", Request("GET", "/", "", True)),
        (b"GET / HTTP/1.0\r\nCONNECTION: keep-alive\r\n\r\n", Request("GET", "/", "", False)),
        (b"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", Request("GET", "/", "", False)),
        (b"GET / HTTP/1.1\r\nX: \xff\r\n\r\n", Request("GET", "/", "", False)),
    ],
)  # fmt: skip
def test_request_is_read(head: bytes, meant: Request) -> None:
    assert parse(head) == meant


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),  # a TLS hello
        (b"GET /\r\n\r\n", 400),
        (b"GET / X/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"PUT / HTTP/1.1\r\n\r\n", 405),
        (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
    ],
)
def test_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(head)
    assert caught.value.status == status


def test_response_is_written() -> None:
    response = write(Page(200, "text/plain", b"ok\n"), head_only=False, close=False)
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 3\r\n" in head
    assert b"Connection: keep-alive" in head
    assert b"Allow" not in head
    assert body == b"ok\n"


def test_response_to_head_has_the_length_and_no_body() -> None:
    response = write(Page(503, "text/plain", b"no\n"), head_only=True, close=True)
    assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"Content-Length: 3\r\n" in response
    assert b"Connection: close\r\n" in response
    assert response.endswith(b"\r\n\r\n")


def test_refused_method_tells_which_are_allowed() -> None:
    assert b"\r\nAllow: GET, HEAD\r\n" in write(Page(405, "text/plain", b""), head_only=False, close=True)


def test_missing_token_tells_that_one_is_needed() -> None:
    response = write(Page(401, "text/plain", b""), head_only=False, close=True)
    assert response.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
    assert b'\r\nWWW-Authenticate: Bearer realm="sluice"\r\n' in response


def test_token_of_a_command_is_no_sign_of_a_browser_or_proxy() -> None:
    request = parse(b"POST /v1/enforcement HTTP/1.1\r\nAuthorization: Bearer abc\r\n\r\n")
    assert (request.authorization, request.relayed) == ("Bearer abc", "")
