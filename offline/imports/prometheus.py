"""`sluice-offline import prometheus`: range queries of Prometheus' HTTP API, from files or asked here -> a capture.

A file is a response of `/api/v1/query_range` (a matrix). It is mapped into memory and one series at a time is decoded,
so its size does not matter. A query is asked in windows, each below the 11,000 points that Prometheus answers at most;
a window whose response is larger than RESPONSE_MAX, or has too many samples for the server, is halved. The responses
are kept in files until the import is done, since every series is read twice (`rates`).
"""

import json
import mmap
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from offline.errors import InputError
from offline.imports.rates import Samples, series_text

# What brokers count by client, as the JMX exporter, Strimzi's Metrics Reporter and Confluent name it (`labels`).
QUERY: Final = '{__name__=~"(?i:(.+_)?(quota|produce|fetch)_(byte_rate|throttle_time))"}'
POINTS_MAX: Final = 10_000
RESPONSE_MAX: Final = 256 << 20
_SILENCE_S: Final = 150.0  # Prometheus' own limit for a query is two minutes
_WHOLE_S: Final = 600.0
_PIECE: Final = 1 << 20
_ERROR_MAX: Final = 4096
_CHARACTERS_MAX: Final = 300
_TIME_MAX_S: Final = 1e11


class _Matrix(msgspec.Struct):
    resultType: str = ""  # noqa: N815 - Prometheus' name
    result: list[msgspec.Raw] = []


class _Response(msgspec.Struct):
    """A response of Prometheus' API; what is not needed is left out."""

    status: str = ""
    error: str = ""
    data: _Matrix | None = None
    warnings: list[str] = []


class _Series(msgspec.Struct):
    """One series of a matrix: points of seconds since 1970 and a value, which Prometheus writes as text."""

    metric: dict[str, str]
    values: list[tuple[float, float]] = []


class _Labels(msgspec.Struct):
    metric: dict[str, str] = {}


_RESPONSE: Final = msgspec.json.Decoder(_Response)
_SERIES: Final = msgspec.json.Decoder(_Series, strict=False)
_LABELS: Final = msgspec.json.Decoder(_Labels)


def read_matrix(path: Path) -> Iterator[Samples]:
    """Read the series of a file that is a response of `/api/v1/query_range`.

    Raises:
        InputError: it is not, or cannot be read; the message names the file, and the series at fault.
    """
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise InputError(f"{path}: is empty")
            # Not closed here: what is decoded refers to it, and the last reference closes it.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    yield from _series_of(mapped, path.name)


def _series_of(mapped: mmap.mmap, name: str) -> Iterator[Samples]:
    try:
        response = _RESPONSE.decode(mapped)
    except msgspec.MsgspecError as error:
        raise InputError(f"{name}: is no response of Prometheus' query_range, or cut off: {error}") from error
    if response.status != "success" or response.data is None:
        why = response.error or f'its status is "{response.status}"'
        raise InputError(f"{name}: is no successful response of Prometheus: {why[:_CHARACTERS_MAX]}")
    if response.data.resultType != "matrix":
        kind = response.data.resultType[:_CHARACTERS_MAX]
        raise InputError(f"{name}: is a {kind}, and no matrix: ask /api/v1/query_range")
    if response.warnings:
        raise InputError(
            f"{name}: Prometheus warns that it may not be whole: {response.warnings[0][:_CHARACTERS_MAX]}"
        )
    for raw in response.data.result:
        yield _samples(raw, name)


def _samples(raw: msgspec.Raw, name: str) -> Samples:
    try:
        series = _SERIES.decode(raw)
    except msgspec.MsgspecError as error:
        try:
            whose = series_text(_LABELS.decode(raw).metric)
        except msgspec.MsgspecError:
            whose = ""
        raise InputError(f"{name}: the series {whose} cannot be read: {error}") from error
    points = np.array(series.values, np.float64).reshape(-1, 2)
    if not np.all((points[:, 0] >= 0) & (points[:, 0] < _TIME_MAX_S)):
        raise InputError(f"{name}: the series {series_text(series.metric)} has a time that is none")
    return Samples(series.metric, np.rint(points[:, 0] * 1000).astype(np.int64), points[:, 1].copy(), name)


class Window(NamedTuple):
    """The times of points to ask for, in ms since 1970: the first, the last, and their distance."""

    start_ms: int
    end_ms: int
    step_ms: int


def windows(whole: Window, points: int = POINTS_MAX) -> list[Window]:
    """Divide the points of a query into windows of at most `points`.

    >>> windows(Window(0, 50_000, 10_000), 4)
    [Window(start_ms=0, end_ms=30000, step_ms=10000), Window(start_ms=40000, end_ms=50000, step_ms=10000)]
    """
    long_ms = whole.step_ms * points
    return [
        Window(at_ms, min(whole.end_ms, at_ms + long_ms - whole.step_ms), whole.step_ms)
        for at_ms in range(whole.start_ms, whole.end_ms + 1, long_ms)
    ]


def halves(window: Window) -> list[Window]:
    """Divide a window in two; an empty list if it has only one point.

    >>> halves(Window(0, 20, 10))
    [Window(start_ms=0, end_ms=10, step_ms=10), Window(start_ms=20, end_ms=20, step_ms=10)]
    """
    points = (window.end_ms - window.start_ms) // window.step_ms + 1
    return windows(window, -(-points // 2)) if points > 1 else []


class _TooLargeError(Exception):
    """A response is larger than RESPONSE_MAX, or the server refuses it as too large."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would go to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Server:
    """A server with Prometheus' HTTP API (Thanos, Mimir and VictoriaMetrics have it too).

    Attributes:
        url: such as https://prometheus:9090, with a path before /api/v1 if there is one.
        token: the bearer token; "" for none.
        ca_file: the certificates to trust; "" for the system's.
    """

    url: str
    token: str = ""
    ca_file: str = ""

    def ask(self, queries: Sequence[str], whole: Window, directory: Path) -> list[Path]:
        """Ask range queries, and return the files of their responses, in the order of their times.

        Raises:
            InputError: the server cannot be reached, or refuses; the message names it.
        """
        opener = self._opener()
        files: list[Path] = []
        for query in queries:
            todo = windows(whole)
            while todo:
                window = todo.pop(0)
                path = directory / f"{len(files):06}.json"
                try:
                    self._fetch(opener, query, window, path)
                except _TooLargeError as error:
                    todo[:0] = smaller = halves(window)
                    if not smaller:
                        raise InputError(
                            f"{self.url}: the response for one point is too large: {error}"
                        ) from error
                    continue
                files.append(path)
        return files

    def _opener(self) -> urllib.request.OpenerDirector:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"--url {self.url}: is no URL such as https://prometheus:9090")
        if self.token and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise InputError(f"--url {self.url}: a token is sent over https only")
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{self.ca_file}: is no file of certificates: {error}") from error
        return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))

    def _fetch(self, opener: urllib.request.OpenerDirector, query: str, window: Window, path: Path) -> None:
        asked = urllib.parse.urlencode(
            {
                "query": query,
                "start": window.start_ms / 1000,
                "end": window.end_ms / 1000,
                "step": window.step_ms / 1000,
            }
        )
        request = urllib.request.Request(f"{self.url.rstrip('/')}/api/v1/query_range?{asked}")
        request.add_header("Accept", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        deadline_s = time.monotonic() + _WHOLE_S
        try:
            with opener.open(request, timeout=_SILENCE_S) as response:
                _keep(response, path, deadline_s)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
        except (OSError, HTTPException) as error:
            raise InputError(f"{self.url}: {getattr(error, 'reason', None) or error}") from error

    def _refused(self, error: urllib.error.HTTPError) -> None:
        """Raise what a response with another status than 200 says."""
        text = error.read(_ERROR_MAX).decode("utf-8", "replace").strip()
        with suppress(ValueError, AttributeError):
            text = str(json.loads(text).get("error") or text)
        if "too many samples" in text:
            raise _TooLargeError(text[:_CHARACTERS_MAX]) from error
        said = " ".join(text.split())[:_CHARACTERS_MAX]
        raise InputError(f"{self.url} answers {error.code} {error.reason}: {said}") from error


def _keep(response: HTTPResponse, path: Path, deadline_s: float) -> None:
    """Write a response to a file.

    Raises:
        _TooLargeError: it is larger than RESPONSE_MAX.
    """
    size = 0
    with path.open("wb") as file:
        while piece := response.read1(_PIECE):  # what is there: a slow server is noticed
            size += len(piece)
            if size > RESPONSE_MAX:
                raise _TooLargeError(f"more than {RESPONSE_MAX:,} bytes")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no whole response within {_WHOLE_S:.0f} s")
            file.write(piece)
