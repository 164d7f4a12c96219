"""Synthetic captures of clients with known demand, for tests, benchmarks and the documentation.

Four shapes that occur in clusters: `steady` sends at an even rate; `bursty` sends for a tenth of the time at ten times
its rate; `hog` is steady and far above all others; `bootstrap` reads as fast as the broker responds, from some moment
until it has read everything again. Times and sizes vary by a fixed seed: the same call writes the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.capture import FILE_PREFIX, FILE_SUFFIX, NONE
from tests.support.captures import schema

Shape = Literal["steady", "bursty", "hog", "bootstrap"]
Columns = dict[str, npt.NDArray[np.int64]]

START_WALL_MS: Final = 1_767_225_600_000  # 2026-01-01 00:00 UTC
PROCESS: Final = "20260101T000000-synthetic"
_ROWS_A_FILE: Final = 2_000_000
_ROWS_A_GROUP: Final = 250_000
_SERVICE_US: Final = 800
_BURST_S: Final = 10  # of which one second is busy
_RESPONSE_BYTES: Final = 60  # of a Produce
_REQUEST_BYTES: Final = 120  # of a Fetch
_VERSION: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client id at one broker.

    Attributes:
        rate: bytes/s while it is active, on average over all its connections.
        request_bytes: the size of a Produce, or of a Fetch response.
        produces: whether it sends Produce or Fetch requests.
        start_s, stop_s: when it is active; stop_s None = until the end.
    """

    name: str
    shape: Shape
    rate: float
    request_bytes: int = 16_384
    produces: bool = True
    connections: int = 1
    broker: int = 1
    start_s: float = 0.0
    stop_s: float | None = None


def fleet(clients: int, rate: float, *, hog_share: float = 0.0, brokers: int = 3) -> list[Client]:
    """A mix of clients with `rate` bytes/s altogether, of which one hog has a share."""
    rest = rate * (1 - hog_share)
    weights = 1.0 / np.arange(1, clients + 1) ** 0.7  # few large ones, many small
    weights /= weights.sum()
    shapes: tuple[Shape, ...] = ("steady", "steady", "steady", "bursty")
    found = [
        Client(
            name=f"client-{number:05d}",
            shape=shapes[number % len(shapes)],
            rate=float(rest * weight),
            produces=number % 3 != 2,
            connections=1 + number % 3,
            broker=1 + number % brokers,
        )
        for number, weight in enumerate(weights)
    ]
    if hog_share:
        found.append(Client(name="hog", shape="hog", rate=rate * hog_share, connections=8))
    return found


def write_capture(
    directory: Path, clients: Sequence[Client], seconds: float, *, seed: int = 1, process: str = PROCESS
) -> int:
    """Write a capture; returns its number of requests."""
    directory.mkdir(parents=True, exist_ok=True)
    columns = schema()
    written = files = 0
    writer: pq.ParquetWriter | None = None
    in_file = 0
    for batch in _batches(clients, seconds, seed, process, columns):
        if writer is None:
            name = f"{FILE_PREFIX}{process}-{files}{FILE_SUFFIX}"
            writer = pq.ParquetWriter(directory / name, columns, compression="zstd")
            files += 1
        writer.write_batch(batch)
        written += batch.num_rows
        in_file += batch.num_rows
        if in_file >= _ROWS_A_FILE:
            writer.close()
            writer, in_file = None, 0
    if writer is not None:
        writer.close()
    return written


def _batches(
    clients: Sequence[Client], seconds: float, seed: int, process: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    connection = 0
    for number, client in enumerate(clients):
        one = replace(client, rate=client.rate / client.connections)
        for channel in range(client.connections):
            connection += 1
            rng = np.random.default_rng([seed, number, channel])
            columns = _requests(one, seconds, rng)
            rows = len(columns["mono_us"])
            for begin in range(0, rows, _ROWS_A_GROUP):
                part = {name: values[begin : begin + _ROWS_A_GROUP] for name, values in columns.items()}
                yield _batch(client, connection, begin, part, process, schema)


def _requests(client: Client, seconds: float, rng: np.random.Generator) -> Columns:
    """Times, sizes and service times of one connection's requests."""
    stop_s = min(seconds, client.stop_s if client.stop_s is not None else seconds)
    length_us = max(0.0, stop_s - client.start_s) * 1e6
    period_us = client.request_bytes / client.rate * 1e6
    if client.shape == "bootstrap":
        period_us = 0.0
    # A tenth more than the expected number; requests after the end are cut off.
    count = int(length_us / max(period_us, _SERVICE_US) * 1.1) + 10
    service_us = rng.integers(_SERVICE_US // 2, _SERVICE_US * 3 // 2, count)
    sizes = np.maximum(1, rng.normal(client.request_bytes, client.request_bytes / 10, count)).astype(np.int64)
    gaps_us = np.maximum(rng.uniform(0.5, 1.5, count) * period_us, service_us + 20)
    at_us = np.cumsum(gaps_us)
    if client.shape == "bursty":  # the same requests in every tenth second
        busy_us = 1e6
        at_us = at_us / _BURST_S
        at_us = at_us // busy_us * busy_us * _BURST_S + at_us % busy_us
        at_us = np.maximum.accumulate(at_us + np.arange(count) * 1e-3)
    kept = at_us < length_us
    return {
        "mono_us": (at_us[kept] + client.start_s * 1e6 + 1e6).astype(np.int64),
        "size": sizes[kept],
        "service_us": service_us[kept],
    }


def _batch(
    client: Client, connection: int, begin: int, part: Columns, process: str, schema: pa.Schema
) -> pa.RecordBatch:
    rows = len(part["mono_us"])
    fixed: dict[str, str | int] = {
        "process": process,
        "connection": connection,
        "principal": "ANONYMOUS",
        "client_id": client.name,
        "ip": "127.0.0.1",
        "listener": "clients",
        "broker": client.broker,
        "api_key": 0 if client.produces else 1,
        "api_version": _VERSION,
        "request_bytes": _REQUEST_BYTES,
        "response_bytes": _RESPONSE_BYTES,
        "throttle_ms": 0,
        "delay_ms": 0,
        "quota": "",
        "mutations": 0,
    }
    varying: Columns = {
        "wall_ms": START_WALL_MS + part["mono_us"] // 1000,
        "mono_us": part["mono_us"],
        "seq": np.arange(begin, begin + rows),
        "upstream_us": part["service_us"],
        "request_bytes" if client.produces else "response_bytes": part["size"],
    }
    return pa.RecordBatch.from_arrays(
        [_column(field, rows, fixed, varying, client) for field in schema], schema=schema
    )


def _column(
    field: pa.Field, rows: int, fixed: dict[str, str | int], varying: Columns, client: Client
) -> pa.Array:
    if field.name in varying:
        return pa.array(varying[field.name], type=field.type)
    if field.name == "partitions":
        size = varying["request_bytes" if client.produces else "response_bytes"]
        entry = field.type.value_type
        lists = pa.StructArray.from_arrays(
            [
                pa.repeat(pa.scalar(f"{'written' if client.produces else 'read'}-{client.broker}"), rows),
                pa.repeat(pa.scalar(0, pa.int32()), rows),
                pa.array(size, type=pa.int64()),
                pa.repeat(pa.scalar(NONE, pa.int32()), rows),
            ],
            fields=list(entry),
        )
        return pa.ListArray.from_arrays(
            pa.array(np.arange(rows + 1), type=pa.int32()), lists, type=field.type
        )
    return pa.repeat(pa.scalar(fixed[field.name], type=field.type), rows)
