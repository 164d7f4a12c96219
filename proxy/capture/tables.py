"""Converts rows to columns and Parquet; the only module that imports pyarrow.

Records are converted column by column, and the values that rows share once, so no step loops over rows in Python. The
event loop waits while a single call into pyarrow holds the interpreter, so no step may be long; compression and writing
release it.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from protocol import api
from protocol.capture import CLASS, COLUMNS, FRAME, PARTITION_FIELDS, SCHEMA_KEY, SCHEMA_VERSION
from protocol.walks.walk import OTHER_TOPICS
from proxy.capture.recorder import QUOTAS, Batch, Column, PartitionColumn
from proxy.channel import complete_frame
from quotas.definitions.entities import BucketKey, code
from quotas.definitions.kinds import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quotas.throttles.topic_names import ASKED_AT_ONCE_MAX

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import Array


_COMPRESSION: Final = "zstd"
_TOPIC_ID_BYTES: Final = 16
_NUMBER_BYTES: Final = 8
# The columns that all rows of an origin share, in the order of its fields, with Arrow's names of their types.
_ORIGIN_TYPES: Final = (
    ("connection", "int64"),
    ("ip", "string"),
    ("listener", "string"),
    ("broker", "int32"),
    ("principal", "string"),
    ("client_id", "string"),
)

Names = Callable[[bytes], str | None]
"""Returns a topic's name by its id; None if it is not known."""
Limit = Callable[[str, str, str], tuple[float | None, BucketKey]]
"""Returns the limit and the bucket of a quota key, a user and a client id (`Definitions.limit`)."""


class Tables:
    """Converts captured rows to Arrow, and writes them as Parquet.

    Args:
        process: the name of this process in its rows.
        names: returns a topic's name by its id.
        limit: returns the bucket that a client counts against.
        frames: whether each row has the frame of its request.

    Raises:
        ImportError: pyarrow is not installed.
    """

    def __init__(self, process: str, names: Names, limit: Limit, *, frames: bool = False) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        pa.set_cpu_count(1)  # capture uses a single thread
        self._pa, self._pc, self._pq = pa, pc, pq
        self._names = names
        self._limit = limit
        partition = pa.struct(
            [pa.field(column.name, self._type(column.type), False) for column in PARTITION_FIELDS]
        )
        self._partition = partition
        types = {"list<struct>": pa.list_(pa.field("element", partition, False))}
        self.schema = pa.schema(
            [
                pa.field(column.name, types.get(column.type) or self._type(column.type), False)
                for column in (*COLUMNS, CLASS)
            ],
            metadata={SCHEMA_KEY: str(SCHEMA_VERSION)},
        )
        self._frames = frames
        if frames:
            self.schema = self.schema.append(pa.field(FRAME.name, self._type(FRAME.type), False))
        self._process = pa.scalar(process, pa.string())
        self._quotas = pa.array(QUOTAS, pa.string())

    def _type(self, name: str) -> "pa.DataType":
        return self._pa.string() if name == "string" else getattr(self._pa, name)()

    def writer(self, file: BinaryIO) -> Any:
        """Return a pyarrow `ParquetWriter` with the schema of a capture, which writes to this file."""
        return self._pq.ParquetWriter(file, self.schema, compression=_COMPRESSION)

    def concatenate(self, batches: Sequence["pa.RecordBatch"]) -> "pa.Table":
        """Return one Arrow table with the rows of all batches."""
        return self._pa.Table.from_batches(batches, self.schema)

    def convert(self, batch: Batch) -> "pa.RecordBatch":
        """Convert a batch to Arrow columns: one row for each request, with the schema of a capture's file.

        (An Arrow record batch has nothing to do with Kafka's.)
        """
        pa, pc, rows = self._pa, self._pc, batch.rows

        def column(number: int, kind: str = "int64") -> "Array":
            return self._numbers(batch.column(number), kind)

        mono_ns = column(Column.HANDLED_NS)
        where = column(Column.ORIGIN)
        made = {
            "mono_us": pc.divide(mono_ns, 1000),
            "wall_ms": pc.divide(pc.add(mono_ns, batch.wall_minus_mono_ns), 1_000_000),
            "process": pa.repeat(self._process, rows),
            "seq": column(Column.SEQ),
            "api_key": column(Column.API_KEY, "int16"),
            "api_version": column(Column.API_VERSION, "int16"),
            "request_bytes": column(Column.REQUEST_BYTES),
            "response_bytes": column(Column.RESPONSE_BYTES),
            "upstream_us": pc.divide(column(Column.UPSTREAM_NS), 1000),
            "throttle_ms": column(Column.THROTTLE_MS, "int32"),
            "delay_ms": column(Column.DELAY_MS, "int32"),
            "quota": self._quotas.take(column(Column.QUOTA)),
            "mutations": column(Column.MUTATIONS, "int32"),
            "partitions": self._partitions(batch),
        }
        for (name, kind), values in zip(_ORIGIN_TYPES, zip(*batch.origins, strict=True), strict=True):
            made[name] = pa.array([_text(value) for value in values], self._type(kind)).take(where)
        made[CLASS.name] = self._classes(batch, made["api_key"], where)
        if self._frames:
            sizes = made["request_bytes"].to_pylist()
            frames = [complete_frame(*kept) for kept in zip(batch.frames, sizes, strict=True)]
            made[FRAME.name] = pa.array(frames, pa.binary())
        return pa.RecordBatch.from_arrays([made[name] for name in self.schema.names], schema=self.schema)

    def _classes(self, batch: Batch, api_keys: "Array", where: "Array") -> "Array":
        """Return the code of each row's class, by the quotas in force now; "" unless it is a Produce or a Fetch."""
        pa, pc = self._pa, self._pc

        def codes(key: str) -> "Array":
            buckets = (self._limit(key, one.principal, one.client_id)[1] for one in batch.origins)
            texts = [_text(code(user, client_id, group=group)) for user, client_id, group in buckets]
            return pa.array(texts, pa.string()).take(where)

        fetches = pc.is_in(api_keys, pa.array([api.FETCH, api.SHARE_FETCH], pa.int16()))
        others = pc.if_else(fetches, codes(CONSUMER_BYTE_RATE), "")
        return pc.if_else(pc.equal(api_keys, api.PRODUCE), codes(PRODUCER_BYTE_RATE), others)

    def _numbers(self, values: bytes, kind: str) -> "pa.Array":
        """Return numbers of 8 bytes as an array of this type."""
        pa = self._pa
        buffers = [None, pa.py_buffer(values)]
        found = pa.Array.from_buffers(pa.int64(), len(values) // _NUMBER_BYTES, buffers)
        return found if kind == "int64" else found.cast(self._type(kind))

    def _partitions(self, batch: Batch) -> "pa.Array":
        pa = self._pa

        def column(number: int, kind: str = "int64") -> "Array":
            return self._numbers(batch.partition_column(number), kind)

        names = pa.array([self._topic(raw, by_id) for raw, by_id in batch.topics], pa.string())
        columns = [
            names.take(column(PartitionColumn.TOPIC)),
            column(PartitionColumn.INDEX, "int32"),
            column(PartitionColumn.BYTES),
            column(PartitionColumn.RECORDS, "int32"),
        ]
        entries = pa.StructArray.from_arrays(columns, fields=list(self._partition))
        offsets = pa.array(batch.partition_offsets(), pa.int32())
        return pa.ListArray.from_arrays(offsets, entries, type=self.schema.field("partitions").type)

    def _topic(self, raw: bytes, by_id: bool) -> str:
        if not by_id or len(raw) != _TOPIC_ID_BYTES or raw == OTHER_TOPICS:
            return raw.decode("utf-8", "backslashreplace")
        return self._names(raw) or raw.hex()


def ids_without_name(batch: Batch, names: Names) -> set[bytes]:
    """Return the topic ids in a batch whose names are not known."""
    return {
        raw for raw, by_id in batch.topics if by_id and len(raw) == _TOPIC_ID_BYTES and names(raw) is None
    }


def _text(value: object) -> object:
    """Return text that Parquet can store: lone surrogates are escaped."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


SECONDS_MAX: Final = 2.0
STEP_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 30.0
AWAITED_MAX: Final = 10_000
# With more waiting batches than these the writer is behind, and does not wait for names.
BACKLOG_MAX: Final = 4

Ask = Callable[[Collection[bytes]], None]
"""Requests the names of topic ids; runs on the event loop."""


@dataclass(eq=False)
class Naming:
    """Finds the names of topics that traffic identifies by id.

    The names of all unknown ids in a batch are requested (`quotas.throttles.topic_names` bounds the requests to the
    cluster). The writer waits only for ids that it has not waited for lately, only while few batches are queued, and
    not for a while after a wait without a result. So requests for topics that do not exist do not hold up the capture;
    at most, other clients' rows lack names.

    Args:
        known: returns a topic's name by its id; None if it is not known.
        ask: requests the names of topic ids from the cluster.
        waiting: returns the number of batches that wait to be written.
    """

    known: Names
    ask: Ask
    waiting: Callable[[], int]
    # The ids waited for recently; the oldest is removed first.
    _awaited: dict[bytes, None] = field(init=False, default_factory=dict)
    _next_wait_at: float = field(init=False, default=0.0)

    def resolve(self, batch: Batch) -> None:
        """Ask for the names of a batch's unknown topic ids; wait up to SECONDS_MAX for new ones if no rows pile up."""
        missing = ids_without_name(batch, self.known)
        if not missing:
            return
        self.ask(list(islice(missing, ASKED_AT_ONCE_MAX)))
        now = time.monotonic()
        new = missing.difference(self._awaited)
        if not new or now < self._next_wait_at:
            return
        until = now + SECONDS_MAX
        while new and now < until and self.waiting() <= BACKLOG_MAX:
            time.sleep(STEP_SECONDS)
            new = {topic_id for topic_id in new if self.known(topic_id) is None}
            now = time.monotonic()
        if new:
            self._next_wait_at = now + RETRY_SECONDS
            self._note_awaited(new)

    def _note_awaited(self, topic_ids: set[bytes]) -> None:
        for topic_id in topic_ids:
            self._awaited[topic_id] = None
        for topic_id in list(islice(self._awaited, max(0, len(self._awaited) - AWAITED_MAX))):
            del self._awaited[topic_id]
