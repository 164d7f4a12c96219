"""The five steps: clients of known demand, capture, the pipeline, what it recommends applied, and all sent again.

1. made-up clients (`tests.support.synthetic`: steady, bursty, a hog, a bootstrap that reads everything again) send
   through Sluice, which captures and does not throttle;
2. `sluice-offline run` over that capture; 3. `sluice-offline apply` into a quotas file;
4. what was captured is sent again, through Sluice with these quotas, which captures too;
5. who was throttled, and for how long: as predicted?

`offline.replay` sends at recorded times whatever happens: right for a load test, and no client does so that waits for
its responses. In step 4 each connection sends its next request when the response has come, the throttle time it was
told is over, and the recorded pause too. A Fetch that gets an empty response is sent again. Frames are
`offline.replay`'s.

What is sent in step 4 is not quite what was recorded: where the machine is busy, every request takes longer, so that a
client in a closed loop asks for less and waits for less, by a tenth and more. So three times are compared, in two
steps: the pipeline's prediction with that of the same rules over the first capture, which have to agree; and the time
that clients waited with the prediction for what they really sent, from the second capture. Neither depends on how busy
the machine is.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from offline.options import ENGINE_DEFAULTS
from offline.replay.frames import Encoder
from offline.replay.messages import Broker, outcome
from offline.replay.prepare import prepare
from offline.replay.reading import capture_files, read
from offline.replay.schedule import Recorded
from offline.replay.target import Placement, requirements_of
from protocol.api import FETCH, PRODUCE
from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import recording_of
from tests.cluster import HOST
from tests.support import spark_java
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings
from tests.support.synthetic import Client, write_capture

_EMPTY_BYTES_MAX: Final = 128  # of a Fetch's answer without records
_RESPONSE_SECONDS_MAX: Final = 60.0


@dataclass(slots=True)
class Observed:
    """What one client has seen."""

    requests: int = 0
    bytes: int = 0
    throttled: int = 0
    throttle_ms: int = 0
    errors: int = 0
    seconds: float = 0.0  # until its last response


async def send_again(
    rows: Sequence[Recorded], address: Broker, seconds: float | None = None
) -> dict[str, Observed]:
    """Send the Produce and Fetch requests; by client id, what came of it.

    Args:
        seconds: None: clients keep their pauses, and send everything, however long that takes. Otherwise each request
            is sent at its own time, or as soon as its connection is free, and what is left after so many seconds is
            not sent.
    """
    sent = [row for row in rows if row.api_key in (PRODUCE, FETCH) and row.upstream_us >= 0]
    assert sent, "a recording has requests"
    placement = await prepare(address, requirements_of(sent), create=True, replicas=1, say=lambda _: None)
    encoder = Encoder(placement, 1, int(time.time() * 1000))
    sent.sort(key=lambda row: (row.process, row.connection, row.seq))
    begun_us = min(map(_came_us, sent))
    observed: dict[str, Observed] = {row.client_id: Observed() for row in sent}
    now_s = time.monotonic() + 0.2
    async with asyncio.TaskGroup() as group:
        for _, connection in groupby(sent, key=lambda row: (row.process, row.connection)):
            own = list(connection)
            lane = _Lane(own, encoder, placement, observed[own[0].client_id], seconds)
            group.create_task(lane.run(now_s, begun_us))
    return observed


class _Lane:
    """One connection."""

    def __init__(
        self,
        rows: Sequence[Recorded],
        encoder: Encoder,
        placement: Placement,
        observed: Observed,
        seconds: float | None,
    ) -> None:
        self._rows = rows
        self._encoder = encoder
        self._address = placement.brokers.get(rows[0].broker, placement.brokers[-1])
        self._observed = observed
        self._seconds = seconds

    async def run(self, begun_s: float, begun_us: int) -> None:
        """Send one request after the other."""
        reader, writer = await asyncio.open_connection(*self._address, limit=1 << 24)
        end_s = begun_s + (inf if self._seconds is None else self._seconds)
        due_s = begun_s + (_came_us(self._rows[0]) - begun_us) / 1e6
        try:
            for number, row in enumerate(self._rows):
                await asyncio.sleep(due_s - time.monotonic())
                if time.monotonic() >= end_s:
                    break
                # A timer that was late is made up for at the next pause, or the demand would shrink.
                late_s = max(0.0, time.monotonic() - due_s)
                await self._ask(reader, writer, row, number)
                free_s = time.monotonic()
                self._observed.seconds = max(self._observed.seconds, free_s - begun_s)
                if number + 1 == len(self._rows):
                    break
                following = self._rows[number + 1]
                if self._seconds is None:
                    due_s = free_s + max(0.0, _pause_s(row, following) - late_s)
                else:
                    due_s = begun_s + (_came_us(following) - begun_us) / 1e6
        finally:
            writer.close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, row: Recorded, number: int
    ) -> None:
        frame = self._encoder.encode(row, number)
        assert frame is not None, "every partition was placed"
        while True:
            writer.write(frame.data)
            async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
                prefix = await reader.readexactly(4)
                response = prefix + await reader.readexactly(int.from_bytes(prefix, "big"))
            error, throttle_ms = outcome(response, frame.api_key, frame.version)
            self._observed.errors += error != 0
            self._observed.throttle_ms += throttle_ms
            self._observed.throttled += throttle_ms > 0
            await asyncio.sleep(throttle_ms / 1000)
            if frame.api_key == PRODUCE or len(response) > _EMPTY_BYTES_MAX or not throttle_ms:
                break
        self._observed.requests += 1
        self._observed.bytes += len(frame.data) - 4 if frame.api_key == PRODUCE else len(response) - 4


def _came_us(row: Recorded) -> int:
    """Return when a request had come."""
    return row.mono_us - row.delay_ms * 1000


def _pause_s(row: Recorded, following: Recorded) -> float:
    """What the client did between the two, the recording's own throttling taken out."""
    done_us = row.mono_us + max(row.upstream_us, 0)
    muted_us = (row.mono_us if row.api_key == PRODUCE else done_us) + row.throttle_ms * 1000
    return max(0.0, (_came_us(following) - max(done_us, muted_us)) / 1e6)


# Those who are to be held send large requests. The recorded pauses hold what a client and its connection took between
# a response and the next request, and when they are sent again that comes on top again: a client with small ones would
# ask for much less than was recorded.
CLIENTS: Final = (
    Client(name="steady-1", shape="steady", rate=150_000),
    Client(name="steady-2", shape="steady", rate=200_000),
    Client(name="steady-3", shape="steady", rate=250_000, connections=2),
    Client(name="bursty", shape="bursty", rate=100_000),
    Client(name="hog", shape="hog", rate=4e6, connections=4, request_bytes=262_144),
    Client(name="reader-1", shape="steady", rate=300_000, produces=False, request_bytes=60_000),
    Client(name="reader-2", shape="steady", rate=200_000, produces=False, request_bytes=60_000),
    Client(
        name="bootstrap",
        shape="bootstrap",
        rate=1e6,
        produces=False,
        request_bytes=1_000_000,
        start_s=5.0,
        stop_s=5.035,  # 2.5 times what the window of 11 s lets by at once: no edge is near
    ),
)
HOGS: Final = frozenset({"hog", "bootstrap"})
_RUN_SECONDS_MAX: Final = 400
_THROTTLE: Final = "sluice_client_throttle_seconds_total"
# The capacity is what holds the hog and the bootstrap: it is stated, so no client is cut for a share's sake.
_GOAL: Final = ("--capacity-in=3M", "--capacity-out=2500k", "--overrides=1", "--candidates=30")
_WAIT_MS_MIN: Final = 1000  # of a client that is held: a wait to be compared at all
APART_MAX: Final = 0.05
ROUNDING_MS_MAX: Final = 20
# It counts from another microsecond, and each wait is of whole milliseconds: of the short waits that a busy machine
# makes of long ones, a hundredth and more.
_PIPELINE_APART_MAX: Final = 0.02
SPARK: Final = ("--no-progress", "--master=local[2]", "--driver-memory=1g")


def waited_as_predicted(observed_ms: int, predicted_ms: int) -> bool:
    """Whether a client waited for as long as predicted, within `APART_MAX` and `ROUNDING_MS_MAX`."""
    return abs(observed_ms - predicted_ms) <= APART_MAX * predicted_ms + ROUNDING_MS_MAX


@dataclass(frozen=True, slots=True)
class Compared:
    """One client: what was predicted, and what came.

    Attributes:
        throttled: whether it is to be throttled, by the pipeline.
        predicted_ms: the wait, as the pipeline predicts it from the recording.
        recorded_ms: the same, by the rules over the first capture, without the pipeline.
        sent_ms: the wait that the rules predict for what was really sent in step 4, from the second capture.
        observed_ms: `sluice_client_throttle_seconds_total`: what was decided, as the backtest counts it.
        told_ms: what responses said: less, since a Produce's mute begins at its header, and its response says what is
            left of it.
    """

    client: str
    direction: str
    demand: float
    quota: float
    throttled: bool
    predicted_ms: int
    recorded_ms: int
    sent_ms: int
    observed_ms: int
    told_ms: int
    observed_rate: float
    errors: int

    @property
    def apart(self) -> float | None:
        """By which share clients waited longer than predicted for what they sent; None without a prediction."""
        return self.observed_ms / self.sent_ms - 1 if self.sent_ms else None

    @property
    def as_predicted(self) -> bool:
        """Whether the client waited as predicted for what it sent: the hog and the bootstrap, and no other client."""
        waited = waited_as_predicted(self.observed_ms, self.sent_ms)
        if self.errors or not waited or self.throttled is not (self.client in HOGS):
            return False
        if not self.throttled:
            return True
        apart_ms = abs(self.recorded_ms - self.predicted_ms)
        return self.predicted_ms > _WAIT_MS_MIN and apart_ms <= _PIPELINE_APART_MAX * self.predicted_ms


@dataclass(frozen=True, slots=True)
class Tuned:
    """Everything that came of it."""

    said: str
    compared: tuple[Compared, ...]


def tune(bootstrap: str, directory: Path, seconds: float, say: Callable[[str], None]) -> Tuned:
    """Go through the five steps."""
    made_up, work = directory / "made-up", directory / "work"
    captured, again = directory / "capture", directory / "capture-again"
    write_capture(made_up, CLIENTS, seconds)
    say(f"1. {len(CLIENTS)} clients send for {seconds:g} s through Sluice, which captures")
    with capturing(bootstrap, directory / "first", captured) as sluice:
        _send(made_up, sluice)
    say("2. the pipeline works out what the quotas should be")
    said = sluice_offline("run", "--input", str(captured), "--output", str(work), *_GOAL, *SPARK)
    second = directory / "second"
    with capturing(bootstrap, second, again) as sluice:
        say("3. they are applied to a proxy that runs")
        said += sluice_offline("apply", "--input", str(work), "--quotas-file", str(second / "quotas.toml"))
        sluice.reload()  # it looks at the file by itself too, but not at once
        say("4. what was captured is sent again")
        observed = _send(captured, sluice)
        waits = waits_ms(sluice, observed)
    say("5. predicted and observed")
    captures = [read(capture_files([path])) for path in (captured, again)]
    return Tuned(said, tuple(_compare(work, observed, waits, captures)))


def capturing(bootstrap: str, directory: Path, captured: Path) -> SluiceProcess:
    """Return a proxy without quotas that captures."""
    directory.mkdir()
    # By the rules that the pipeline predicts with; those of SluiceSettings are Kafka's.
    rules = {"policy": ENGINE_DEFAULTS.policy, "scope": ENGINE_DEFAULTS.scope}
    settings = SluiceSettings(bootstrap, quotas=rules, sections={"capture": {"directory": str(captured)}})
    return SluiceProcess.configured(settings, directory)


def predicted_ms(rows: Sequence[Recorded], client: str, api_key: int, quota: float) -> int:
    """Return how long a client's requests would wait in all with a quota in bytes/s, by the rules of the backtest."""
    own = [row for row in rows if (row.client_id, row.api_key) == (client, api_key)]
    own.sort(key=lambda row: (row.connection, row.seq))
    assert len({row.process for row in own}) == 1, "one process has captured them, by one clock"

    def column(value: Callable[[Recorded], int]) -> npt.NDArray[np.int64]:
        return np.array([value(row) for row in own], dtype=np.int64)

    recording = recording_of(
        connection=column(lambda row: row.connection),
        at_us=column(lambda row: row.mono_us),
        sizes=column(lambda row: row.request_bytes if api_key == PRODUCE else max(row.response_bytes, 0)),
        service_us=column(lambda row: row.upstream_us),
        delay_us=column(lambda row: row.delay_ms * 1000),
        throttle_us=column(lambda row: row.throttle_ms * 1000),
        consumes=api_key == FETCH,
    )
    return backtest(recording, [quota], ENGINE_DEFAULTS, start_s=0, seconds=0).each[0].throttle_ms


def _send(capture: Path, sluice: SluiceProcess) -> dict[str, Observed]:
    return asyncio.run(send_again(read(capture_files([capture])), broker_of(sluice.bootstrap)))


def broker_of(bootstrap: str) -> Broker:
    """Return the address in `host:port`."""
    host, _, port = bootstrap.rpartition(":")
    return Broker(host or HOST, int(port))


def waits_ms(sluice: SluiceProcess, clients: Iterable[str]) -> dict[tuple[str, str], int]:
    """Return by direction and client id how long the proxy has made clients wait in all."""
    return {
        (direction, client): round(1000 * sluice.metric(_THROTTLE, client_id=client, type=kind))
        for direction, kind in (("produce", "Produce"), ("fetch", "Fetch"))
        for client in clients
    }


def sluice_offline(*arguments: str) -> str:
    """Run a command of `sluice-offline`; returns what it prints.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "offline", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, **spark_java.ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS_MAX,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def _compare(
    work: Path,
    observed: Mapping[str, Observed],
    waits: Mapping[tuple[str, str], int],
    captures: Sequence[Sequence[Recorded]],
) -> list[Compared]:
    demand = {
        (row["direction"], row["client_id"]): row["peak_10s"]
        for row in pq.read_table(work / "demand" / "entities").to_pylist()
    }
    rows: list[dict[str, Any]] = pq.read_table(work / "recommend" / "needs").to_pylist()
    found = []
    for row in sorted(rows, key=lambda row: (row["direction"], row["client_id"])):
        client = observed[row["client_id"]]
        api_key = PRODUCE if row["direction"] == "produce" else FETCH
        recorded_ms, sent_ms = (
            predicted_ms(capture, row["client_id"], api_key, row["quota"]) for capture in captures
        )
        found.append(
            Compared(
                client=row["client_id"],
                direction=row["direction"],
                demand=demand[row["direction"], row["client_id"]],
                quota=row["quota"],
                throttled=row["throttled"],
                predicted_ms=row["throttle_ms"],
                recorded_ms=recorded_ms,
                sent_ms=sent_ms,
                observed_ms=waits[row["direction"], row["client_id"]],
                told_ms=client.throttle_ms,
                observed_rate=client.bytes / max(client.seconds, 1e-9),
                errors=client.errors,
            )
        )
    return found
