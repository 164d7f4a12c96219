"""`make week`: a week in ten minutes through a real broker, with the advice of days 1 to 5 in force on days 6 and 7.

Clients of `tests.support.families`, whose truth is known, send seven days through Sluice, which captures and does not
throttle until `sluice-offline run` has worked on the first five, and `sluice quotas apply` has put its quotas in force.

A day has `--day` seconds: each of them sends the bytes of one second of the family's day, evenly spaced, so the shape
of a day is compressed and bytes/s are not. The pipeline is told the length of a day (`--day`). What is not compressed
are the quota's burst and the broker: a night's batch of an hour lasts a few seconds, and its need is that of seconds.

A client sends when it is due; one that has to wait sends at once what it is behind with, and what it has not sent when
the week is over stays unsent.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from rich.console import Console

from offline.advice.explain import amount
from offline.options import ENGINE_DEFAULTS, Goal
from offline.replay.prepare import prepare
from offline.replay.reading import capture_files, read
from offline.replay.schedule import Part, Recorded
from offline.replay.target import requirements_of
from protocol.api import FETCH, PRODUCE
from protocol.capture import NONE
from quotas.backtest import fluid
from tests.bench import machine, report
from tests.bench.picture import Panel, draw_panels
from tests.bench.report import Bar, Outcome, tabulate
from tests.cluster import Cluster, ClusterOptions
from tests.support.families import DAY_S, made
from tests.support.proxy_process import ROOT, sluice
from tests.tune.loop import (
    APART_MAX,
    ROUNDING_MS_MAX,
    SPARK,
    broker_of,
    capturing,
    predicted_ms,
    send_again,
    sluice_offline,
    waited_as_predicted,
    waits_ms,
)

Floats = npt.NDArray[np.float64]

DAYS: Final = 7
_SEEN: Final = 5  # days that the advice is made from
_SEED: Final = 11  # the first of `make evaluate`
_POINTS: Final = 12  # of a day in the picture: every two hours
_TOLERANCE: Final = Goal().tolerance
_PASSED_MAX: Final = 0.3  # of what the hog asks for
_VERSION: Final = 12
_SERVICE_US: Final = 800
_OTHER_BYTES: Final = 100  # of a Produce's response, and of a Fetch request
_COLUMNS_OF_PANELS: Final = 2
_PAGE: Final = ROOT / "docs" / "advice.md"
_PICTURE: Final = ROOT / "docs" / "advice-week.svg"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A client of a family.

    Attributes:
        number: which one of the family.
        rate: its mean over the days that the advice is made from, in bytes/s; the families' own are for no laptop.
        request_bytes: the mean size of a Produce, or of a Fetch response.
        name: the client id, where the family's is another client's as well; "" for the family's.
    """

    family: str
    number: int
    rate: float
    request_bytes: int = 16_384
    produces: bool = True
    name: str = ""


# Of each family one that does what the family is about: the first burst of a client that never had one is what no
# advice can know (docs/advice.md), so it is one that has had bursts.
_HOG: Final = Chosen("hog", 0, 150e3, 32_768)
CLIENTS: Final = (
    Chosen("steady", 0, 200e3),
    Chosen("steady", 1, 250e3, produces=False),
    Chosen("day-and-week", 1, 250e3),
    Chosen("day-and-week", 2, 200e3, produces=False),
    Chosen("growth", 1, 200e3),
    Chosen("bursts", 2, 100e3),
    Chosen("night-batch", 1, 100e3, 32_768),
    Chosen("new-tenant", 11, 100e3),
    Chosen("hog", 1, 200e3),
    Chosen("hog", 2, 200e3, produces=False),
    _HOG,
    Chosen(_HOG.family, _HOG.number, _HOG.rate, _HOG.request_bytes, produces=False, name="reading-hog"),
)


@dataclass(frozen=True, slots=True)
class Client:
    """One client's week.

    Attributes:
        sizes: the bytes that it asks for in each second.
        hog_from_s: the second from which on it is to be held back; None for a client that behaves.
    """

    name: str
    chosen: Chosen
    sizes: Floats
    hog_from_s: float | None

    @property
    def direction(self) -> str:
        return "produce" if self.chosen.produces else "fetch"

    @property
    def api_key(self) -> int:
        return PRODUCE if self.chosen.produces else FETCH


def week(chosen: Sequence[Chosen], day_s: int, seed: int) -> list[Client]:
    """Return the clients' weeks: days of `day_s` seconds; the hogs begin on the sixth."""
    hog = made(_HOG.family, seed)[_HOG.number]
    assert hog.hog_from_s is not None, "that is what its family is about"
    first = hog.hog_from_s // DAY_S - _SEEN
    of_day = np.arange(day_s) * DAY_S // day_s
    found = []
    for each in chosen:
        client = made(each.family, seed)[each.number]
        sizes = client.sizes.reshape(-1, DAY_S)[first : first + DAYS, of_day].ravel()
        sizes = sizes * (each.rate / sizes[: _SEEN * day_s].mean())
        begin = None if client.hog_from_s is None else (client.hog_from_s / DAY_S - first) * day_s
        found.append(Client(each.name or client.name, each, sizes, begin))
    return found


def requests(client: Client, connection: int, seed: int) -> list[Recorded]:
    """Return the requests of a week: each when its last byte is due, so that bytes by second are the client's."""
    chosen = client.chosen
    total = np.concatenate(([0.0], np.cumsum(client.sizes)))
    rng = np.random.default_rng([seed, connection])
    count = int(total[-1] / chosen.request_bytes * 1.1) + 10
    own = np.maximum(1, rng.normal(chosen.request_bytes, chosen.request_bytes / 10, count)).astype(np.int64)
    ends = np.cumsum(own)
    at_us = np.interp(ends, total, np.arange(len(total)) * 1e6).astype(np.int64)
    return [
        Recorded(
            wall_ms=at // 1000,
            mono_us=at,
            process="week",
            connection=connection,
            seq=seq,
            client_id=client.name,
            broker=1,
            api_key=client.api_key,
            api_version=_VERSION,
            request_bytes=size if chosen.produces else _OTHER_BYTES,
            response_bytes=_OTHER_BYTES if chosen.produces else size,
            upstream_us=_SERVICE_US,
            throttle_ms=0,
            delay_ms=0,
            partitions=(Part(f"week-{client.name}", 0, size, NONE),),
        )
        for seq, (at, size) in enumerate(zip(at_us[ends <= total[-1]].tolist(), own.tolist(), strict=False))
    ]


@dataclass(frozen=True, slots=True)
class Judged:
    """One client on the days with the advice in force.

    Attributes:
        highest: its need on the day that needed most before, in bytes/s.
        expected: its highest need on the days with the advice, as forecast.
        needed: what it was, from what it asked for.
        predicted_ms: the wait that the rules predict for what it really sent.
        observed_ms: `sluice_client_throttle_seconds_total`.
        asked, passed: bytes; of a hog since it is one.
    """

    client: Client
    highest: float
    expected: float
    needed: float
    quota: float
    grade: str
    predicted_ms: int
    observed_ms: int
    asked: float
    passed: float
    errors: int

    @property
    def hog(self) -> bool:
        return self.client.hog_from_s is not None

    @property
    def as_predicted(self) -> bool:
        return waited_as_predicted(self.observed_ms, self.predicted_ms)


@dataclass(frozen=True, slots=True)
class Week:
    """What came of a week.

    Attributes:
        passed: by client, the bytes that passed in each second.
    """

    judged: Sequence[Judged]
    passed: Mapping[str, Floats]


def run(cluster: Cluster, directory: Path, day_s: int, say: Callable[[str], None]) -> Week:
    """Send a week; judge its last two days."""
    clients = week(CLIENTS, day_s, _SEED)
    rows = [row for number, client in enumerate(clients) for row in requests(client, number, _SEED)]
    # At the broker, so that what fills the topics is no part of the recording.
    address = broker_of(cluster.bootstrap())
    asyncio.run(prepare(address, requirements_of(rows), create=True, replicas=1, say=lambda _: None))
    border_s = _SEEN * day_s
    parts = [[row for row in rows if (row.mono_us < border_s * 1e6) is before] for before in (True, False)]
    before, work, after = directory / "capture", directory / "work", directory / "capture-after"
    say(f"1. days 1 to {_SEEN}: {len(clients)} clients send for {border_s} s through Sluice, which captures")
    with capturing(cluster.bootstrap(), directory / "first", before) as proxy:
        first = asyncio.run(send_again(parts[0], broker_of(proxy.bootstrap), border_s))
    say("2. the pipeline works out what the quotas should be")
    more = (f"--day={day_s}", f"--horizon={DAYS - _SEEN}")
    sluice_offline("run", "--input", str(before), "--output", str(work), *more, *SPARK)
    with capturing(cluster.bootstrap(), directory / "second", after) as proxy:
        quotas = work / "recommend" / "quotas.toml"
        say(sluice("quotas", "apply", quotas, "--bootstrap-server", proxy.bootstrap).strip())
        rest_s = (DAYS - _SEEN) * day_s
        say(f"3. days {_SEEN + 1} and {DAYS}: they send for {rest_s} s more, with these quotas in force")
        second = asyncio.run(send_again(parts[1], broker_of(proxy.bootstrap), rest_s))
        waits = waits_ms(proxy, second)
    captures = [read(capture_files([path])) for path in (before, after)]
    passed = {
        client.name: np.concatenate(
            [
                by_second(capture, client, days * day_s)
                for capture, days in zip(captures, (_SEEN, DAYS - _SEEN), strict=True)
            ]
        )
        for client in clients
    }
    errors = {name: seen.errors + first[name].errors for name, seen in second.items()}
    judged = [
        _judge(client, work, captures[1], waits, passed[client.name], errors[client.name], day_s)
        for client in clients
    ]
    return Week(judged, passed)


def by_second(rows: Sequence[Recorded], client: Client, seconds: int) -> Floats:
    """Return the bytes that a client's requests moved in each second since the first request of all clients.

    What came after the last second counts there: a request that had to wait.
    """
    moved = [row for row in rows if row.api_key in (PRODUCE, FETCH)]
    begun_us = min(row.mono_us for row in moved)
    own = [row for row in moved if (row.client_id, row.api_key) == (client.name, client.api_key)]
    at = [min((row.mono_us - begun_us) // 1_000_000, seconds - 1) for row in own]
    sizes = [row.request_bytes if client.chosen.produces else max(row.response_bytes, 0) for row in own]
    return np.bincount(at, weights=sizes, minlength=seconds).astype(np.float64)


def _judge(
    client: Client,
    work: Path,
    capture: Sequence[Recorded],
    waits: Mapping[tuple[str, str], int],
    passed: Floats,
    errors: int,
    day_s: int,
) -> Judged:
    def row_of(table: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = pq.read_table(work / "recommend" / table).to_pylist()
        name = (client.direction, client.name)
        return next(row for row in rows if (row["direction"], row["client_id"]) == name)

    forecast, quota = row_of("forecasts"), float(row_of("needs")["quota"])
    since = round(_SEEN * day_s if client.hog_from_s is None else client.hog_from_s)
    return Judged(
        client=client,
        highest=forecast["highest"],
        expected=forecast["expected"],
        needed=need(client.sizes[_SEEN * day_s :], day_s),
        quota=quota,
        grade=forecast["grade"],
        predicted_ms=predicted_ms(capture, client.name, client.api_key, quota),
        observed_ms=waits[client.direction, client.name],
        asked=float(client.sizes[since:].sum()),
        passed=float(passed[since:].sum()),
        errors=errors,
    )


def need(sizes: Floats, day_s: int) -> float:
    """Return the need of the day that needs most, in bytes/s."""
    seconds = np.flatnonzero(sizes >= 1)
    cuts = np.searchsorted(seconds, np.arange(0, len(sizes) + 1, day_s))
    found = fluid.needs(seconds, sizes[seconds], cuts, ENGINE_DEFAULTS.burst_seconds, _TOLERANCE * day_s)
    return float(found.max())


def outcome(found: Week, day_s: int) -> Outcome:
    """Return the table and the bars."""
    rest_ms = (DAYS - _SEEN) * day_s * 1000
    columns: Mapping[str, Callable[[Judged], object]] = {
        "client": lambda row: row.client.name,
        "": lambda row: row.client.direction,
        "needed before": lambda row: amount(row.highest),
        "expected": lambda row: amount(row.expected),
        "needed": lambda row: amount(row.needed),
        "quota": lambda row: amount(row.quota),
        "confidence": lambda row: row.grade,
        "passed": lambda row: f"{row.passed / row.asked:.1%}",
        "predicted wait": lambda row: f"{row.predicted_ms / 1000:.2f} s",
        "seen wait": lambda row: f"{row.observed_ms / 1000:.2f} s",
        "errors": lambda row: row.errors,
    }
    behaving = [row for row in found.judged if not row.hog]
    hogs = [row for row in found.judged if row.hog]
    bars = [
        Bar(
            "longest wait of a client that behaves",
            100 * max(row.observed_ms for row in behaving) / rest_ms,
            100 * _TOLERANCE,
            "% of the time",
        ),
        Bar(
            "passed of what a hog asks for",
            100 * max(row.passed / row.asked for row in hogs),
            100 * _PASSED_MAX,
            "%",
        ),
        Bar(
            f"clients that wait otherwise than predicted (by more than {APART_MAX:.0%} and {ROUNDING_MS_MAX} ms)",
            sum(not row.as_predicted for row in found.judged),
            0,
            "clients",
        ),
        Bar("errors", sum(row.errors for row in found.judged), 0, "responses"),
    ]
    title = f"Days {_SEEN + 1} and {DAYS}, with the advice of days 1 to {_SEEN}"
    return Outcome([tabulate(title, found.judged, columns)], bars)


def draw(path: Path, found: Week, day_s: int) -> None:
    """Draw what passed of each client, its quota, and what the hogs asked for."""
    edges = np.arange(DAYS * _POINTS + 1) * (day_s / _POINTS)
    seconds = np.arange(DAYS * day_s) + 0.5
    lengths = np.histogram(seconds, edges)[0]

    def line(sizes: Floats) -> list[tuple[float, float]]:
        rates = np.histogram(seconds, edges, weights=sizes)[0] / lengths / 1e3
        return list(zip((edges[:-1] / day_s + 1).tolist(), rates.tolist(), strict=True))

    panels = []
    for row in found.judged:
        name, quota = row.client.name, row.quota / 1e3
        lines = {"passed": line(found.passed[name]), "quota": [(_SEEN + 1.0, quota), (DAYS + 1.0, quota)]}
        if row.hog:
            lines["asked for"] = line(row.client.sizes)
        marks = [(_SEEN + 1.0, "advice in force")]
        if row.client.hog_from_s is not None:
            marks.append((row.client.hog_from_s / day_s + 1, "hog"))
        panels.append(Panel(f"{name}, {row.client.direction}: kB/s", lines, marks))
    rows = [panels[at : at + _COLUMNS_OF_PANELS] for at in range(0, len(panels), _COLUMNS_OF_PANELS)]
    draw_panels(path, rows, "day", (11, 2.2 * len(rows)))


def main(console: Console) -> bool:
    """Run it; no if a bar is missed."""
    options = argparse.ArgumentParser(prog="make week", description=__doc__)
    options.add_argument("--day", type=int, default=85, metavar="SECONDS", help="length of a day, default 85")
    options.add_argument("--write", action="store_true", help="write docs/advice.md and docs/advice-week.svg")
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sluice-week-") as directory,
        Cluster(ClusterOptions(nodes=1)) as cluster,
    ):
        found = run(cluster, Path(directory), given.day, console.print)
    facts = machine.describe()
    result = outcome(found, given.day)
    report.show(console, facts, result)
    if given.write:
        draw(_PICTURE, found, given.day)
        shown = f"\n![What passed of each client, its quota, and what the hogs asked for]({_PICTURE.name})\n"
        report.write(_PAGE, "week", facts, result, shown)
    return all(bar.passed for bar in result.bars)


if __name__ == "__main__":
    sys.exit(report.run(main))
