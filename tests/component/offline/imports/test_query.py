"""Range queries over HTTP, before a server that answers as Prometheus does, and before others."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from offline.cli import main
from offline.errors import InputError
from offline.imports import prometheus
from offline.imports.prometheus import Server, Window, read_matrix
from tests.support.certificates import Authority

Asked = dict[str, str]
Answer = tuple[int, dict[str, str], bytes]
LABELS = {"__name__": "kafka_server_produce_byte_rate", "client_id": "c"}
HOUR = Window(0, 3_600_000, 15_000)


def as_prometheus(asked: Asked) -> Answer:
    """Each point is its time; as Prometheus, more than 11,000 points are refused."""
    start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
    count = int((end - start) / step) + 1
    if count > 11_000:
        return refused(400, "exceeded maximum resolution of 11,000 points per timeseries")
    values = [[start + step * place, str(start + step * place)] for place in range(count)]
    data = {"resultType": "matrix", "result": [{"metric": LABELS, "values": values}]}
    return 200, {}, json.dumps({"status": "success", "data": data}).encode()


def refused(code: int, why: str) -> Answer:
    return code, {}, json.dumps({"status": "error", "errorType": "bad_data", "error": why}).encode()


@contextmanager
def serving(
    answer: Callable[[Asked], Answer], context: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[Asked]]]:
    """Serve `/api/v1/query_range` on loopback; yield the port, and what was asked, with the token."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            assert parts.path == "/prefix/api/v1/query_range"
            one = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked.append({**one, "token": self.headers.get("Authorization", "")})
            code, headers, body = answer(one)
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_address[1], asked
        server.shutdown()
        thread.join()


def url(port: int, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{port}/prefix/"


def values(files: list[Path]) -> list[float]:
    return [value for file in files for samples in read_matrix(file) for value in samples.values.tolist()]


def test_long_range_is_asked_in_windows_and_each_point_comes_once(tmp_path: Path) -> None:
    whole = Window(0, 10 * 86_400_000, 15_000)
    with serving(as_prometheus) as (port, asked):
        files = Server(url(port)).ask(['{job="kafka"}'], whole, tmp_path)
    assert values(files) == [15.0 * place for place in range(10 * 5760 + 1)]
    assert len(asked) == 6
    assert {each["query"] for each in asked} == {'{job="kafka"}'}
    assert {each["token"] for each in asked} == {""}


def test_server_that_is_asked_for_too_many_samples_gets_smaller_windows(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Answer:
        if float(asked["end"]) - float(asked["start"]) > 1000:
            return refused(422, "query processing would load too many samples into memory in query execution")
        return as_prometheus(asked)

    with serving(answer) as (port, asked):
        files = Server(url(port)).ask(["x"], HOUR, tmp_path)
    assert values(files) == [15.0 * place for place in range(241)]
    assert len(files) == 4
    assert len(asked) == 7


def test_too_large_response_is_asked_for_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "RESPONSE_MAX", 3000)
    with serving(as_prometheus) as (port, asked):
        files = Server(url(port)).ask(["x"], HOUR, tmp_path)
    assert values(files) == [15.0 * place for place in range(241)]
    assert len(asked) > len(files) > 1
    assert max(file.stat().st_size for file in files) <= 3000


def test_response_for_one_point_that_is_too_large_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "RESPONSE_MAX", 10)
    with (
        serving(as_prometheus) as (port, asked),
        pytest.raises(InputError, match="for one point is too large"),
    ):
        Server(url(port)).ask(["x"], HOUR, tmp_path)
    assert len(asked) < 12


def test_redirect_is_not_followed(tmp_path: Path) -> None:
    with serving(as_prometheus) as (other, asked_other):
        answer = 302, {"Location": url(other) + "api/v1/query_range?start=0&end=1&step=1"}, b""
        with serving(lambda _: answer) as (port, _), pytest.raises(InputError, match="answers 302"):
            Server(url(port), token="secret").ask(["x"], HOUR, tmp_path)
    assert asked_other == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refused(400, "invalid parameter"), "answers 400 Bad Request: invalid parameter"),
        ((401, {}, b"who\nare you"), "answers 401 Unauthorized: who are you"),
        ((502, {}, b"<html>" * 10_000), "answers 502 Bad Gateway: <html>"),
    ],
)
def test_refusal_is_told(tmp_path: Path, answer: Answer, said: str) -> None:
    with serving(lambda _: answer) as (port, _), pytest.raises(InputError, match=said) as caught:
        Server(url(port)).ask(["x"], HOUR, tmp_path)
    assert len(str(caught.value)) < 500


def test_nothing_that_listens_is_told(tmp_path: Path) -> None:
    with serving(as_prometheus) as (port, _):
        pass
    with pytest.raises(InputError, match="refused"):
        Server(url(port)).ask(["x"], HOUR, tmp_path)


def test_token_is_sent_with_tls_and_the_certificate_is_checked(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    certificate = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    with serving(as_prometheus, context) as (port, asked):
        trusted = Server(url(port, "https"), token="secret", ca_file=str(authority.cert_file))
        assert len(values(trusted.ask(["x"], HOUR, tmp_path))) == 241
        assert asked[0]["token"] == "Bearer secret"
        with pytest.raises(InputError, match="certificate verify failed"):
            Server(url(port, "https"), token="secret").ask(["x"], HOUR, tmp_path)


def test_command_asks_imports_and_leaves_only_the_capture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    with serving(as_prometheus) as (port, asked):
        words = ["--url", url(port), "--start", "1970-01-01T01:00", "--end", "7200", "--output", str(output)]
        assert main(["import", "prometheus", *words]) == 0
    assert [each["query"] for each in asked] == [prometheus.QUERY]
    # A point each 15 s of an hour, both ends too.
    assert "import: 241 points of 1 series: 1 client, 1 h 0 min\n" in capsys.readouterr().out
    assert [path.suffix for path in output.iterdir()] == [".parquet"]
