"""Rates by client and step -> captured requests that every stage reads as it reads a capture.

A point says how many bytes a client moved in the step before it, and not when within the step, in how many requests or
over how many connections. So the bytes of a step are spread evenly over it, on one connection for each client,
direction and broker.

How large a request is. The policies charge whole requests, so larger ones would make a client need more than its rate:
`kip13` up to size / 10 s more, and with `schedule` a client would wait for the part of a request above the burst of a
second. Smaller ones cost time in every stage. So a request has what the client moves in one second (Fetch: half a
second, since half of a burst is kept for Fetches that wait for data) at that broker at its highest rate: then
`schedule` finds exactly the rate as the need, and `kip13` at most 10 % (Fetch: 5 %) more, as for a real client that
sends one request a second. At lower rates the requests are as large and further apart, at least one for each step that
has bytes. No request is made smaller than those of a client at the smallest default that is ever recommended.

What is missing is a gap: a step without a point, or with NaN, has no bytes, and if no client has a point, the time is
not recorded. A counter that falls has been reset, and counts from 0 (as Prometheus' own functions assume). The bytes
that a counter counted over a gap are left out too: when they came is not known.

Two passes over the input, so that only one piece of it is in memory: the first finds the steps, each client's highest
rate and what is missing, the second makes the requests.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commandline.amounts import count, duration
from offline.advice.limits import DEFAULT_MIN
from offline.errors import InputError
from offline.imports.labels import NO_BROKER, Client, Reading, broker_ids
from protocol.api import FETCH, METADATA, PRODUCE
from protocol.capture import NONE

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

REQUEST_S: Final = {"produce": 1.0, "fetch": 0.5}
# 35 minutes of all stages on two cores (docs/benchmarks.md), and about 4 GB.
REQUESTS_MAX: Final = 500_000_000
SERIES_MAX: Final = 200_000
# A step is longer than usual by at most this; above it, points are missing.
_JITTER: Final = 1.5
# A Kafka broker's byte-rate is a mean over its quota window of eleven seconds.
_WINDOW_MS: Final = 11_000
_FINE_MS: Final = 15_000
_MISSING_SHARE: Final = 0.01
_ROWS: Final = 500_000
_LINES_MAX: Final = 20
_ANONYMOUS: Final = "ANONYMOUS"
# What is above is no number of bytes, and would not fit in the arithmetic.
_RATE_MAX: Final = 1e12
_COUNTER_MAX: Final = 4e18


class Samples(NamedTuple):
    """Points of one series, or successive ones of them.

    Attributes:
        labels: with the metric's name under `labels.NAME`, if it has one.
        at_ms: since 1970, ascending.
        values: as many; NaN for a missing one.
        file: where they are from, for messages.
    """

    labels: Mapping[str, str]
    at_ms: Ints
    values: Floats
    file: str


class Spans(NamedTuple):
    """Steps with a known number of bytes, as arrays: from, until (ms since 1970), bytes."""

    start_ms: Ints
    end_ms: Ints
    size: Ints


@dataclass(slots=True)
class Track:
    """How far one series has been read: its last point, and what was counted on the way.

    Attributes:
        missing: steps without a point between two that are there.
        resets: how often the counter fell.
        left_out: bytes that a counter counted over gaps.
    """

    step_ms: int
    counter: bool
    points: int = 0
    missing: int = 0
    resets: int = 0
    left_out: int = 0
    _last_ms: int = -1
    _last: float = 0.0

    def spans(self, at_ms: Ints, values: Floats) -> Spans:
        """Return the steps that these points speak of, which follow those read before.

        Raises:
            ValueError: a point is not after the one before it, or a value is infinite or below 0; the message is the
                end of a sentence that begins with the series.
        """
        there = ~np.isnan(values)
        at_ms, values = at_ms[there], values[there]
        if self._last_ms >= 0 and len(at_ms) and at_ms[0] == self._last_ms:  # two windows share a boundary
            at_ms, values = at_ms[1:], values[1:]
        if not len(at_ms):
            return Spans(at_ms, at_ms, at_ms)
        before_ms = np.concatenate(([self._last_ms], at_ms[:-1]))
        before = np.concatenate(([self._last], values[:-1]))
        self._check(at_ms, before_ms, values)
        known = before_ms >= 0
        passed_ms = np.where(known, at_ms - before_ms, self.step_ms)
        gap = passed_ms > _JITTER * self.step_ms
        self.points += len(at_ms)
        self.missing += int(np.rint(passed_ms[gap] / self.step_ms).sum()) - int(gap.sum())
        self._last_ms, self._last = int(at_ms[-1]), float(values[-1])
        if not self.counter:
            length_ms = np.where(gap, self.step_ms, passed_ms)
            size = np.rint(values * length_ms / 1000).astype(np.int64)
            return Spans(at_ms - length_ms, at_ms, size)
        fell = known & (values < before)
        size = np.rint(np.where(fell, values, values - before)).astype(np.int64)
        self.resets += int(fell.sum())
        self.left_out += int(size[known & gap].sum())
        kept = known & ~gap
        return Spans(before_ms[kept], at_ms[kept], size[kept])

    def _check(self, at_ms: Ints, before_ms: Ints, values: Floats) -> None:
        if not np.all(at_ms > before_ms):
            raise ValueError(
                "has two points at one time, or goes back in time: files are given in the order of their times, and "
                "where several series are of one client at one broker, the query has to add them up (sum by)"
            )
        wrong = ~((values >= 0) & (values < (_COUNTER_MAX if self.counter else _RATE_MAX)))
        if wrong.any():
            raise ValueError(f"has the value {values[wrong][0]:g}, which is no number of bytes")


@dataclass(slots=True)
class Found:
    """What the first pass found of one client's bytes at one broker.

    Attributes:
        peak: the highest rate of a step, in bytes/s.
        throttled: points that say that it was throttled; -1: there is no such series.
    """

    number: int
    track: Track
    size: int = 0
    peak: float = 0.0
    throttled: int = -1


Read = Callable[[], Iterable[Samples]]


@dataclass(slots=True)
class Rates:
    """All series of an import, and the requests that they become.

    Attributes:
        read: reads the input from its beginning, in the same order each time.
        reading: how names and labels are understood.
        step_ms: the distance of points; 0 to find it in each file.
    """

    read: Read
    reading: Reading
    step_ms: int = 0
    found: dict[Client, Found] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    recorded: list[tuple[int, int]] = field(default_factory=list)
    brokers: dict[str, int] = field(default_factory=dict)
    gauges: bool = False
    _steps: dict[str, int] = field(default_factory=dict)
    _throttles: dict[Client, tuple[Track, int]] = field(default_factory=dict)

    def survey(self) -> None:
        """Read everything once: the first pass.

        Raises:
            InputError: there is nothing to import, or it is wrong or too much; the message names file and series.
        """
        if not self.step_ms:
            self._find_steps()
        covered: list[tuple[int, int]] = []
        seen: set[tuple[tuple[str, str], ...]] = set()
        for samples in self.read():
            self._first_pass(samples, covered, seen)
        if not any(found.size for found in self.found.values()):
            why = "; ".join(f"{text} ({number} series)" for text, number in self.skipped.most_common(3))
            raise InputError(f"no bytes of any client in the input{': ' if why else ''}{why}")
        for client, (_, throttled) in self._throttles.items():
            if client in self.found:
                self.found[client].throttled = throttled
        self.recorded = merged(covered)
        self.brokers = broker_ids([client.broker for client in self.found])
        if self.requests > REQUESTS_MAX:
            days = (self.recorded[-1][1] - self.recorded[0][0]) / 86_400_000
            raise InputError(
                f"{days:.1f} days of {len(self.found)} series would become {self.requests:,} requests, and "
                f"{REQUESTS_MAX:,} are made at most: import {days * REQUESTS_MAX / self.requests:.1f} days"
            )

    @property
    def requests(self) -> int:
        """About how many requests `tables` makes; at most one a point more."""
        each = self.found.items()
        return int(
            sum(found.size / self._request(client, found) + found.track.points for client, found in each)
        )

    @property
    def process(self) -> str:
        """The name of the import, the same each time for the same rates: read twice, it is found to be there twice."""
        content = repr(sorted((client, found.size) for client, found in self.found.items()))
        return f"import-{zlib.crc32(f'{self.recorded}{content}'.encode('utf-8', 'replace')):08x}"

    def source(self) -> str:
        """Return what the recording cannot know, as `grade: grounds`, where the grade is the highest it allows."""
        steps = sorted(set(self._steps.values()) or {self.step_ms})
        longest = steps[-1]
        said = [f"rates by steps of {longest / 1000:g} s, so bursts within a step are not known"]
        if self.gauges and longest > _WINDOW_MS:
            said.append(
                "a broker's byte-rate is the mean of its last 11 s, so the rest of a step is not measured unless the "
                "query averages"
            )
        said.append("requests and connections are not known")
        low = longest > _FINE_MS
        known = [found for found in self.found.values() if found.throttled >= 0]
        if len(known) < len(self.found):
            low = True
            some = "some clients" if known else "clients"
            said.append(f"whether {some} were throttled is not known without throttle-time")
        throttled = sorted({_name(client) for client, found in self.found.items() if found.throttled > 0})
        if throttled:
            low = True
            more = f" and {len(throttled) - 3:,} more" if len(throttled) > 3 else ""
            need = "needs" if len(throttled) == 1 else "need"
            names = ", ".join(throttled[:3])
            said.append(f"throttled while recorded and so {need} more than was seen: {names}{more}")
        points, missing = (
            sum(getattr(found.track, name) for found in self.found.values()) for name in ("points", "missing")
        )
        if missing:
            share = missing / (points + missing)
            low |= share > _MISSING_SHARE
            said.append(f"{share:.1%} of the points are missing")
        if NO_BROKER in self.brokers.values():
            said.append("which broker it was is not known, so all are taken as one")
        return f"{'low' if low else 'medium'}: {'; '.join(said)}"

    def lines(self) -> list[str]:
        """Return lines for the operator about what was found."""
        tracks = [found.track for found in self.found.values()]
        total = {
            name: sum(getattr(track, name) for track in tracks)
            for name in ("points", "missing", "resets", "left_out")
        }
        length_s = sum(end - start for start, end in self.recorded) / 1000
        clients = len({client[:3] for client in self.found})
        of = f"{len(self.found)} series: {count(clients, 'client')}, {duration(length_s)}"
        said = [f"{count(total['points'], 'point')} of {of}"]
        if total["missing"]:
            said.append(
                f"{count(total['missing'], 'point')} missing: gaps, and no bytes are made up for them"
            )
        if total["resets"]:
            said.append(f"{count(total['resets'], 'reset')} of counters")
        if total["left_out"]:
            said.append(f"{total['left_out']:,} bytes left out that counters counted over gaps")
        said += [f"{number} series not read: {text}" for text, number in self.skipped.most_common(_LINES_MAX)]
        named = [
            f"broker {number} is {name}"
            for name, number in self.brokers.items()
            if name not in ("", str(number))
        ]
        said += named[:_LINES_MAX]
        if len(named) > _LINES_MAX:
            said.append(f"and {len(named) - _LINES_MAX:,} more brokers")
        if not any(client.client_id for client in self.found):
            said.append("no series names a client id: use --by user in the stages")
        return said

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Make the requests, as rows of a capture: the second pass."""
        starts = np.array([start for start, _ in self.recorded], np.int64)
        processes = [f"{self.process}-{_stamp(start)}" for start, _ in self.recorded]
        yield _table(
            schema, {"api_key": METADATA, "response_bytes": NONE, "upstream_us": NONE}, self._ends(processes)
        )
        tracks = {
            client: Track(found.track.step_ms, found.track.counter) for client, found in self.found.items()
        }
        seqs: Counter[Client] = Counter()
        for samples in self.read():
            meaning = self.reading.meaning(samples.labels)
            if isinstance(meaning, str) or meaning.kind != "bytes":
                continue
            client = meaning.client
            for at_ms, size in self._pieces(client, tracks[client].spans(samples.at_ms, samples.values)):
                where = np.searchsorted(starts, at_ms, side="right") - 1
                process = pa.DictionaryArray.from_arrays(pa.array(where, pa.int32()), pa.array(processes))
                produces = client.direction == "produce"
                varying = {
                    "wall_ms": at_ms,
                    "mono_us": at_ms * 1000,
                    "seq": np.arange(seqs[client], seqs[client] + len(size)),
                    "process": process.cast(pa.string()),
                    "request_bytes" if produces else "response_bytes": size,
                }
                seqs[client] += len(size)
                yield _table(schema, self._fixed(client), varying)

    def _fixed(self, client: Client) -> dict[str, str | int]:
        """Return the columns that are the same in all rows of a client."""
        return {
            "connection": 1 + self.found[client].number,
            "principal": client.user or _ANONYMOUS,
            "client_id": client.client_id,
            "broker": self.brokers[client.broker],
            "api_key": PRODUCE if client.direction == "produce" else FETCH,
        }

    def _pieces(self, client: Client, spans: Spans) -> Iterator[tuple[Ints, Ints]]:
        """Make the requests of some steps, about _ROWS at a time."""
        if not len(spans.size):
            return
        longest_s = int((spans.end_ms - spans.start_ms).max()) / 1000
        steps = max(1, int(_ROWS * REQUEST_S[client.direction] / longest_s))
        for first in range(0, len(spans.size), steps):
            at_ms, size = self._requests(client, Spans(*(column[first : first + steps] for column in spans)))
            if len(size):
                yield at_ms, size

    def _find_steps(self) -> None:
        """Find the distance of points in each file: the smallest median of its series."""
        for samples in self.read():
            if len(samples.at_ms) > 1 and not isinstance(self.reading.meaning(samples.labels), str):
                median = int(np.median(np.diff(samples.at_ms)))
                self._steps[samples.file] = min(median, self._steps.get(samples.file, median))
        wrong = [file for file, step_ms in self._steps.items() if step_ms <= 0]
        if wrong:
            raise InputError(f"{wrong[0]}: the times of a series do not ascend")

    def _first_pass(
        self, samples: Samples, covered: list[tuple[int, int]], seen: set[tuple[tuple[str, str], ...]]
    ) -> None:
        meaning = self.reading.meaning(samples.labels)
        if isinstance(meaning, str):
            labels = tuple(sorted(samples.labels.items()))
            if labels not in seen and len(seen) < SERIES_MAX:
                seen.add(labels)
                self.skipped[meaning] += 1
            return
        client = meaning.client
        step_ms = self.step_ms or self._steps.get(samples.file) or min(self._steps.values(), default=0)
        if not step_ms:
            raise InputError(f"{samples.file}: no series has two points, so the step is not known")
        try:
            if meaning.kind == "throttle":
                track, before = self._throttles.get(client) or (Track(step_ms, meaning.counter), 0)
                throttled = int((track.spans(samples.at_ms, samples.values).size > 0).sum())
                self._throttles[client] = (track, before + throttled)
                return
            found = self.found.get(client)
            if found is None:
                if len(self.found) >= SERIES_MAX:
                    raise InputError(
                        f"{samples.file}: more than {SERIES_MAX:,} clients, directions and brokers"
                    )
                found = self.found[client] = Found(len(self.found), Track(step_ms, meaning.counter))
            if found.track.counter != meaning.counter:
                raise ValueError(
                    "is a rate, and another one of the same client a counter: import only one of them"
                )
            spans = found.track.spans(samples.at_ms, samples.values)
        except ValueError as error:
            raise InputError(f"{samples.file}: the series {series_text(samples.labels)} {error}") from error
        self.gauges |= not meaning.counter
        if not len(spans.size):
            return
        found.size += int(spans.size.sum(dtype=np.float64))  # no sum of 40 days is too large for it
        found.peak = max(found.peak, float((spans.size / (spans.end_ms - spans.start_ms)).max()) * 1000)
        cuts = np.flatnonzero(spans.start_ms[1:] > spans.end_ms[:-1])
        begins = spans.start_ms[np.concatenate(([0], cuts + 1))]
        ends = spans.end_ms[np.append(cuts, len(spans.size) - 1)]
        covered += zip(begins.tolist(), ends.tolist(), strict=True)

    def _request(self, client: Client, found: Found) -> float:
        """Return the bytes of a request of this client, at its highest rate."""
        return REQUEST_S[client.direction] * max(found.peak, DEFAULT_MIN)

    def _requests(self, client: Client, spans: Spans) -> tuple[Ints, Ints]:
        """Return time (ms) and bytes of the requests that the bytes of some steps become."""
        request = self._request(client, self.found[client])
        length_ms = spans.end_ms - spans.start_ms
        # Never closer than at the highest rate: a step may be no whole number of requests long.
        most = np.maximum(1, length_ms // int(REQUEST_S[client.direction] * 1000))
        number = np.where(spans.size > 0, np.minimum(np.ceil(spans.size / request), most), 0).astype(np.int64)
        step = np.repeat(np.arange(len(number)), number)
        place = np.arange(len(step)) - np.repeat(np.cumsum(number) - number, number)
        whole: Ints = spans.size[step]
        parts: Ints = number[step]
        # Brokers are scraped at the same times; a client does not send to all of them at the same moment.
        names = sorted(self.brokers)
        phase = names.index(client.broker) / len(names)
        at_ms = spans.start_ms[step] + ((place + phase) * length_ms[step] / parts).astype(np.int64)
        rest: Ints = whole % parts
        size: Ints = whole // parts + (place + 1) * rest // parts - place * rest // parts
        return at_ms, size

    def _ends(self, processes: list[str]) -> dict[str, Ints | pa.Array]:
        """Return a row at the beginning and at the end of each recorded time: zeros are recorded too."""
        at_ms = np.array([at for start, end in self.recorded for at in (start, end - 1)], np.int64)
        names = pa.array([name for name in processes for _ in range(2)])
        return {"wall_ms": at_ms, "mono_us": at_ms * 1000, "process": names, "seq": np.arange(len(at_ms)) % 2}


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of spans, in order.

    >>> merged([(5, 9), (0, 3), (3, 5), (20, 30)])
    [(0, 9), (20, 30)]
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def series_text(labels: Mapping[str, str]) -> str:
    """Return labels as Prometheus writes a series.

    >>> series_text({"__name__": "up", "job": "kafka"})
    'up{job="kafka"}'
    """
    inner = ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
    return f"{labels.get('__name__', '')}{{{inner}}}"[:500]


def _name(client: Client) -> str:
    return "/".join(filter(None, (client.user, client.client_id)))


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")


_FIXED: Final[Mapping[str, str | int]] = {
    "connection": 0,
    "principal": _ANONYMOUS,
    "client_id": "",
    "ip": "",
    "listener": "import",
    "broker": NO_BROKER,
    "api_version": 0,
    "request_bytes": 0,
    "response_bytes": 0,
    "upstream_us": 0,
    "throttle_ms": 0,
    "delay_ms": 0,
    "quota": "",
    "mutations": 0,
}


def _table(
    schema: pa.Schema, fixed: Mapping[str, str | int], varying: Mapping[str, Ints | pa.Array]
) -> pa.Table:
    """Return captured rows: columns that are the same in all rows, and columns that are not."""
    rows = len(varying["wall_ms"])
    values = {**_FIXED, **fixed}
    columns = []
    for column in schema:
        if column.name in varying:
            columns.append(pa.array(varying[column.name], column.type))
        elif column.name == "partitions":
            empty = pa.array(np.zeros(rows + 1, np.int32))
            columns.append(
                pa.ListArray.from_arrays(empty, pa.array([], column.type.value_type), type=column.type)
            )
        else:
            columns.append(pa.repeat(pa.scalar(values[column.name], column.type), rows))
    return pa.Table.from_arrays(columns, schema=schema)
