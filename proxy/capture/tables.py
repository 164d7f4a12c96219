"""Rows -> columns -> Parquet; the only module that knows pyarrow.

Columns are made one after the other with a pause between them, because Python's threads take turns: the event loop must
never wait for a batch to be converted. What a connection's rows share is converted once for each connection and put in
its places by pyarrow, which lets others run meanwhile; so does all that compresses and writes.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from time import sleep
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from protocol.capture import COLUMNS, FRAME, PARTITION_FIELDS, SCHEMA_KEY, SCHEMA_VERSION
from protocol.messages.walk import OTHER_TOPICS
from proxy.capture.recorder import Batch
from proxy.channel import Row, whole

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Names", "Tables", "unnamed"]

_COMPRESSION: Final = "zstd"
_PAUSE_SECONDS: Final = 0.0002
_INT32_MAX: Final = 0x7FFFFFFF
_TOPIC_ID_BYTES: Final = 16
_TOPIC_IDS_SINCE: Final = 13  # Produce and Fetch alike

Names = Callable[[bytes], str | None]
"""A topic's name by its id, where it is known."""


class Tables:
    """Makes record batches of rows, and files of record batches.

    Raises:
        ImportError: pyarrow is not installed.
    """

    def __init__(
        self, process: str, names: Names, pause_seconds: float = _PAUSE_SECONDS, *, frames: bool = False
    ) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        pa.set_cpu_count(1)  # one thread of ours is all that capture may take
        self._pa, self._pc, self._pq = pa, pc, pq
        self._names = names
        self._pause_seconds = pause_seconds
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
        self._process = pa.array([process], pa.string())

    def _type(self, name: str) -> "pa.DataType":
        return self._pa.string() if name == "string" else getattr(self._pa, name)()

    def writer(self, file: BinaryIO) -> Any:
        """Begin a file."""
        return self._pq.ParquetWriter(file, self.schema, compression=_COMPRESSION)

    def joined(self, batches: Sequence["pa.RecordBatch"]) -> "pa.Table":
        """One table of many batches."""
        return self._pa.Table.from_batches(batches, self.schema)

    def convert(self, batch: Batch) -> "pa.RecordBatch":
        """Make columns of rows."""
        pa, pc, number = self._pa, self._pc, self._numbers
        rows = list(zip(*batch.rows, strict=True))
        self._pause()
        places: dict[Any, int] = {}
        where = pa.array([places.setdefault(place, len(places)) for place in rows[Row.PLACE]], pa.int32())
        shared = list(zip(*places, strict=True))
        self._pause()
        mono_ns = number(rows[Row.HANDLED_NS], "int64")
        made = {
            "mono_us": pc.divide(mono_ns, 1000),
            "wall_ms": pc.divide(pc.add(mono_ns, batch.wall_minus_mono_ns), 1_000_000),
            "process": self._process.take(pa.array(bytes(len(batch.rows)), pa.int8())),
            "seq": number(rows[Row.SEQ], "int64"),
            "api_key": number(rows[Row.API_KEY], "int16"),
            "api_version": number(rows[Row.API_VERSION], "int16"),
            "request_bytes": number(rows[Row.REQUEST_BYTES], "int64"),
            "response_bytes": number(rows[Row.RESPONSE_BYTES], "int64"),
            "upstream_us": pc.divide(number(rows[Row.UPSTREAM_NS], "int64"), 1000),
            "throttle_ms": number([min(value, _INT32_MAX) for value in rows[Row.THROTTLE_MS]], "int32"),
            "delay_ms": number([min(value, _INT32_MAX) for value in rows[Row.DELAY_MS]], "int32"),
            "quota": self._strings(rows[Row.QUOTA]),
            "mutations": number(rows[Row.MUTATIONS], "int32"),
            "partitions": self._partitions(rows),
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
            kept = zip(rows[Row.FRAME], rows[Row.REQUEST_BYTES], strict=True)
            made[FRAME.name] = pa.array([whole(frame, size) for frame, size in kept], pa.binary())
        return pa.RecordBatch.from_arrays([made[name] for name in self.schema.names], schema=self.schema)

    def _pause(self) -> None:
        sleep(self._pause_seconds)

    def _numbers(self, values: Sequence[int], kind: str) -> "pa.Array":
        made = self._pa.array(values, self._type(kind))
        self._pause()
        return made

    def _strings(self, values: Sequence[str]) -> "pa.Array":
        places: dict[str, int] = {}
        where = self._pa.array([places.setdefault(value, len(places)) for value in values], self._pa.int32())
        self._pause()
        return self._pa.array(list(places), self._pa.string()).take(where)

    def _partitions(self, rows: Sequence[Sequence[Any]]) -> "pa.Array":
        pa = self._pa
        lists = [
            tuple(found) for found in rows[Row.PARTITIONS]
        ]  # a walk that was cut short could still hold one
        ends = [0]
        for found in lists:
            ends.append(ends[-1] + len(found))
        offsets = pa.array(ends, pa.int32())
        self._pause()
        named = [version >= _TOPIC_IDS_SINCE for version in rows[Row.API_VERSION]]
        by_id = [flag for flag, found in zip(named, lists, strict=True) for _ in found]
        flat = list(zip(*chain.from_iterable(lists), strict=True)) or [(), (), (), ()]
        self._pause()
        topics = self._strings([self._topic(*pair) for pair in zip(flat[0], by_id, strict=True)])
        columns = [
            topics,
            self._numbers(flat[1], "int32"),
            self._numbers(flat[2], "int64"),
            self._numbers(flat[3], "int32"),
        ]
        entries = pa.StructArray.from_arrays(columns, fields=list(self._partition))
        return pa.ListArray.from_arrays(offsets, entries, type=self.schema.field("partitions").type)

    def _topic(self, raw: bytes, by_id: bool) -> str:
        if not by_id or len(raw) != _TOPIC_ID_BYTES or raw == OTHER_TOPICS:
            return raw.decode("utf-8", "backslashreplace")
        return self._names(raw) or raw.hex()


def unnamed(batch: Batch, names: Names) -> set[bytes]:
    """Ids of topics in these rows whose names are not known."""
    return {
        found[0]
        for row in batch.rows
        if row[Row.API_VERSION] >= _TOPIC_IDS_SINCE
        for found in row[Row.PARTITIONS]
        if len(found[0]) == _TOPIC_ID_BYTES and names(found[0]) is None
    }


def _text(value: object) -> object:
    """Text as Parquet takes it: lone surrogates become escapes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
