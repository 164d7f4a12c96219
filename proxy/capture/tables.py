"""Converts rows to columns and Parquet; the only module that imports pyarrow.

Values that all rows of a connection share are converted once, and distributed by pyarrow. The event loop waits while a
single call into pyarrow holds the interpreter, so no step may be long; compression and writing release it.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from protocol.capture import COLUMNS, FRAME, PARTITION_FIELDS, SCHEMA_KEY, SCHEMA_VERSION
from protocol.walks.walk import OTHER_TOPICS
from proxy.capture.recorder import Batch
from proxy.channel import Head, Row, complete_frame

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Names", "Tables", "ids_without_name"]

_COMPRESSION: Final = "zstd"
_TOPIC_ID_BYTES: Final = 16
_TOPIC_IDS_SINCE: Final = 13  # Produce and Fetch alike

Names = Callable[[bytes], str | None]
"""Returns a topic's name by its id; None if it is not known."""


class Tables:
    """Converts rows to record batches, and writes record batches to files.

    Raises:
        ImportError: pyarrow is not installed.
    """

    def __init__(self, process: str, names: Names, *, frames: bool = False) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        pa.set_cpu_count(1)  # capture uses a single thread
        self._pa, self._pc, self._pq = pa, pc, pq
        self._names = names
        partition = pa.struct(
            [pa.field(column.name, self._type(column.type), False) for column in PARTITION_FIELDS]
        )
        self._partition = partition
        types = {"list<struct>": pa.list_(pa.field("element", partition, False))}
        self.schema = pa.schema(
            [
                pa.field(column.name, types.get(column.type) or self._type(column.type), False)
                for column in COLUMNS
            ],
            metadata={SCHEMA_KEY: str(SCHEMA_VERSION)},
        )
        self._frames = frames
        if frames:
            self.schema = self.schema.append(pa.field(FRAME.name, self._type(FRAME.type), False))
        self._process = pa.scalar(process, pa.string())

    def _type(self, name: str) -> "pa.DataType":
        return self._pa.string() if name == "string" else getattr(self._pa, name)()

    def writer(self, file: BinaryIO) -> Any:
        """Return a writer of a Parquet file."""
        return self._pq.ParquetWriter(file, self.schema, compression=_COMPRESSION)

    def joined(self, batches: Sequence["pa.RecordBatch"]) -> "pa.Table":
        """Return one table of several batches."""
        return self._pa.Table.from_batches(batches, self.schema)

    def convert(self, batch: Batch) -> "pa.RecordBatch":
        """Convert a batch of rows to columns."""
        pa, pc, number = self._pa, self._pc, self._numbers
        rows = list(zip(*batch.rows, strict=True))
        heads = list(zip(*rows[Row.HEAD], strict=True))
        origins = {id(origin): origin for origin in rows[Row.ORIGIN]}
        indices = {key: index for index, key in enumerate(origins)}
        where = pa.array([indices[key] for key in map(id, rows[Row.ORIGIN])], pa.int32())
        shared = list(zip(*origins.values(), strict=True))
        mono_ns = number(rows[Row.HANDLED_NS], "int64")
        made = {
            "mono_us": pc.divide(mono_ns, 1000),
            "wall_ms": pc.divide(pc.add(mono_ns, batch.wall_minus_mono_ns), 1_000_000),
            "process": pa.repeat(self._process, len(batch.rows)),
            "seq": number(rows[Row.SEQ], "int64"),
            "api_key": number(heads[Head.API_KEY], "int16"),
            "api_version": number(heads[Head.API_VERSION], "int16"),
            "request_bytes": number(heads[Head.REQUEST_BYTES], "int64"),
            "response_bytes": number(rows[Row.RESPONSE_BYTES], "int64"),
            "upstream_us": pc.divide(number(rows[Row.UPSTREAM_NS], "int64"), 1000),
            "throttle_ms": number(rows[Row.THROTTLE_MS], "int32"),
            "delay_ms": number(rows[Row.DELAY_MS], "int32"),
            "quota": pa.array(rows[Row.QUOTA], pa.string()),
            "mutations": number(rows[Row.MUTATIONS], "int32"),
            "partitions": self._partitions(rows[Row.PARTITIONS], heads[Head.API_VERSION]),
        }
        for index, (name, kind) in enumerate(
            (
                ("connection", "int64"),
                ("ip", "string"),
                ("listener", "string"),
                ("broker", "int32"),
                ("principal", "string"),
                ("client_id", "string"),
            )
        ):
            made[name] = pa.array([_text(value) for value in shared[index]], self._type(kind)).take(where)
        if self._frames:
            kept = zip(rows[Row.FRAME], heads[Head.REQUEST_BYTES], strict=True)
            made[FRAME.name] = pa.array([complete_frame(frame, size) for frame, size in kept], pa.binary())
        return pa.RecordBatch.from_arrays([made[name] for name in self.schema.names], schema=self.schema)

    def _numbers(self, values: Sequence[int], kind: str) -> "pa.Array":
        return self._pa.array(values, self._type(kind))

    def _partitions(self, noted: Sequence[Any], versions: Sequence[int]) -> "pa.Array":
        pa, number = self._pa, self._numbers
        # Comprehensions: Python takes turns in them, as it can not within one `zip` of everything.
        lists = [tuple(entries) for entries in noted]  # a walk that was cut short could still hold one
        sizes = [len(entries) for entries in lists]
        found = [entry for entries in lists for entry in entries]
        kinds = [version >= _TOPIC_IDS_SINCE for version in versions]
        by_id = [kind for kind, size in zip(kinds, sizes, strict=True) for _ in range(size)]
        names: dict[tuple[bytes, bool], str] = {}
        for (topic, _, _, _), kind in zip(found, by_id, strict=True):
            if (topic, kind) not in names:
                names[topic, kind] = self._topic(topic, kind)
        columns = [
            pa.array([names[entry[0], kind] for entry, kind in zip(found, by_id, strict=True)], pa.string()),
            number([entry[1] for entry in found], "int32"),
            number([entry[2] for entry in found], "int64"),
            number([entry[3] for entry in found], "int32"),
        ]
        entries = pa.StructArray.from_arrays(columns, fields=list(self._partition))
        offsets = pa.array(accumulate(sizes, initial=0), pa.int32())
        return pa.ListArray.from_arrays(offsets, entries, type=self.schema.field("partitions").type)

    def _topic(self, raw: bytes, by_id: bool) -> str:
        if not by_id or len(raw) != _TOPIC_ID_BYTES or raw == OTHER_TOPICS:
            return raw.decode("utf-8", "backslashreplace")
        return self._names(raw) or raw.hex()


def ids_without_name(batch: Batch, names: Names) -> set[bytes]:
    """Return the topic ids in these rows whose names are not known."""
    return {
        found[0]
        for row in batch.rows
        if row[Row.HEAD][Head.API_VERSION] >= _TOPIC_IDS_SINCE
        for found in row[Row.PARTITIONS]
        if len(found[0]) == _TOPIC_ID_BYTES and names(found[0]) is None
    }


def _text(value: object) -> object:
    """Return text that Parquet can store: lone surrogates are escaped."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
