"""Every table of the pipeline as data: its columns with their Spark types and meanings.

A stage writes exactly these columns, in this order; a column is not null unless its meaning says so. docs/offline.md
shows the same tables (a test compares). Times are UTC. `user` and `client_id` are the parts of the quota entity: "" if
the entity does not have that part. The captured row itself is defined by `protocol.capture`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.capture import COLUMNS, PARTITION_FIELDS, SCHEMA_KEY, SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column of a table: its name, Spark's name of its type, and what it contains."""

    name: str
    type: str
    meaning: str


_SPARK: Final = {"int64": "bigint", "int32": "int", "int16": "smallint", "string": "string"}
_PARTITIONS: Final = ",".join(f"{field.name}:{_SPARK[field.type]}" for field in PARTITION_FIELDS)

CAPTURE: Final = tuple(
    Column(
        column.name,
        f"array<struct<{_PARTITIONS}>>" if column.type == "list<struct>" else _SPARK[column.type],
        column.meaning,
    )
    for column in COLUMNS
)

_ENTITY: Final = (
    Column("direction", "string", "`produce` or `fetch`"),
    Column("user", "string", "of the quota entity"),
    Column("client_id", "string", "of the quota entity"),
)
_BROKER: Final = Column("broker", "int", "id")
_QUOTA: Final = Column("quota", "double", "the candidate, in bytes/s and broker")

_RECORDING: Final = Column("recording", "string", "name of its directory")
_RECOMMENDER: Final = Column("recommender", "string", "`sluice`, `oracle`, or a baseline")
_TERMS_RECOMMENDER: Final = Column("recommender", "string", "`sluice`, `oracle`, or other terms")
_HOGS: Final = (
    Column("hogs", "bigint", "scores of days on which a client is to be held back"),
    Column("caught", "double", "share of these on which it was held back; -1: there are none"),
    Column("passed", "double", "the part of what the hog asked for that passes; -1: likewise"),
    Column(
        "spared", "double", "share of the others' scores in these days without too long waits; -1: likewise"
    ),
)


def _intervals(*measures: tuple[str, str]) -> Iterator[Column]:
    """Yield the columns of measures with their intervals; each is a name and a meaning."""
    for name, meaning in measures:
        yield Column(name, "double", meaning)
        yield Column(f"{name}_low", "double", f"{meaning}, 2.5 % of draws of clients")
        yield Column(f"{name}_high", "double", f"{meaning}, 97.5 % of them")


TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "ingest/requests": (
        Column("at_us", "bigint", "when it was handled, us since 1970, by the process's own clock"),
        Column("connection", "bigint", "number of the connection, over all processes"),
        Column("seq", "bigint", "number of the request on it"),
        Column("user", "string", "of the quota entity"),
        Column("client_id", "string", "of the quota entity"),
        Column("broker", "int", "id; -1: not known"),
        Column("api_key", "smallint", "0 Produce, 1 Fetch"),
        Column("request_bytes", "bigint", "what a Produce is charged with"),
        Column("response_bytes", "bigint", "what a Fetch is charged with; -1: no response"),
        Column("service_us", "bigint", "the broker's time; -1: no broker's response"),
        Column("delay_ms", "int", "how long before `at_us` it had come"),
        Column(
            "throttle_ms",
            "int",
            "the throttle time that was decided; with `schedule` a short one is not always told",
        ),
        Column("mutations", "int", "partition mutations"),
    ),
    "ingest/processes": (
        Column("process", "string", "id of the run"),
        Column("process_index", "int", "its number in `connection`: connection >> 40"),
        Column("requests", "bigint", "rows"),
        Column("first_wall_ms", "bigint", "of its first row, as `at_us` counts"),
        Column("last_wall_ms", "bigint", "of its last row, likewise"),
        Column("offset_us", "bigint", "wall time minus its own clock, for most of its rows"),
        Column("wall_step_ms", "bigint", "how far the wall clock moved against its own: a step"),
    ),
    "ingest/problems": (
        Column("file", "string", "the file"),
        Column("row", "bigint", "the row in it, from 0; -1: the whole file"),
        Column("problem", "string", "what is wrong with it"),
    ),
    "demand/per_second": (
        *_ENTITY,
        _BROKER,
        Column("second", "bigint", "since 1970"),
        Column("bytes", "bigint", "that the quota counts"),
        Column("requests", "bigint", "0: earlier ones were with the broker yet, or later ones already"),
        Column("connections", "bigint", "that sent a request in this second"),
        Column("in_flight", "double", "requests with the broker, on average over this second"),
    ),
    "demand/entities": (
        *_ENTITY,
        Column("rank", "int", "1 is the one with the highest peak over 10 s, by direction"),
        Column("bytes", "bigint", "altogether"),
        Column("requests", "bigint", ""),
        Column("share", "double", "of all bytes in this direction"),
        Column("active_seconds", "bigint", "seconds with a request, over all brokers"),
        Column("mean", "double", "bytes/s over the recorded time, all brokers"),
        Column("p50", "double", "of the bytes in an active second, over all brokers"),
        Column("p90", "double", "the same"),
        Column("p99", "double", "the same"),
        Column("peak_1s", "double", "bytes/s at its busiest broker: quotas are per broker"),
        Column("peak_10s", "double", "mean over 10 s, likewise"),
        Column("peak_60s", "double", "mean over 60 s, likewise"),
        Column("connections_max", "bigint", "at once, over all brokers"),
        Column("in_flight_max", "double", "requests with brokers, at the busiest second"),
    ),
    "demand/brokers": (
        Column("direction", "string", ""),
        _BROKER,
        Column("bytes", "bigint", "altogether"),
        Column("mean", "double", "bytes/s over the recorded time"),
        Column("p50", "double", "of the bytes in an active second"),
        Column("p99", "double", "the same"),
        Column("peak_1s", "double", "bytes/s"),
        Column("peak_10s", "double", "mean over 10 s"),
        Column("peak_60s", "double", "mean over 60 s"),
    ),
    "demand/diurnal": (
        *_ENTITY,
        Column("hour", "int", "of the day, UTC"),
        Column("bytes", "bigint", "in this hour of all days"),
        Column("bytes_per_second", "double", "over the seconds of it that were recorded"),
    ),
    "demand/mutations": (
        Column("user", "string", ""),
        Column("client_id", "string", ""),
        Column("second", "bigint", "since 1970"),
        Column("mutations", "bigint", "partition mutations asked for"),
    ),
    "demand/pauses": (
        *_ENTITY,
        Column("second", "bigint", "since 1970, in which its requests were told to wait"),
        Column("paused_s", "double", "how long, over all its connections"),
        Column("further_s", "double", "of that, beyond the first second of each wait"),
    ),
    "demand/span": (
        Column("start_s", "bigint", "the first second"),
        Column("seconds", "bigint", "how many there are, gaps between captures too"),
        Column("recorded_seconds", "bigint", "seconds that some process has recorded"),
        Column("requests", "bigint", "Produces and Fetches that are demand"),
    ),
    "backtest/outcomes": (
        *_ENTITY,
        _BROKER,
        _QUOTA,
        Column("requests", "bigint", ""),
        Column("decisions", "bigint", "questions to the throttle: who has to wait asks more than once"),
        Column("throttled", "bigint", "requests that had to wait"),
        Column("throttle_ms", "bigint", "how long, altogether"),
        Column("idle_ms", "bigint", "of that, for what Fetches that waited for data might have brought"),
        Column("throttle_ms_p99", "bigint", "of all requests"),
        Column("throttle_ms_max", "bigint", ""),
        Column("bytes", "bigint", ""),
        Column("bytes_delayed", "bigint", "of requests that had to wait"),
        Column("bytes_late", "bigint", "that passed only after the recording's end"),
        Column("late_ms", "bigint", "how much later it was done than as recorded"),
    ),
    "backtest/loads": (
        Column("direction", "string", ""),
        _BROKER,
        _QUOTA,
        Column("user", "string", "of a heavy entity; both empty: all others together"),
        Column("client_id", "string", "likewise"),
        Column("heavy", "boolean", "whether it is one heavy entity"),
        Column("start_s", "bigint", "the first second of `bytes`"),
        Column("bytes", "array<bigint>", "that passed in each second, at most an hour"),
    ),
    "backtest/tasks": (
        Column("task", "int", "Spark partition"),
        Column("requests", "bigint", "times candidates: what it decided"),
        Column("seconds", "double", "of one core, in the compiled loop"),
    ),
    "recommend/recommendations": (
        Column("kind", "string", "`default`, `override`, `capacity`, `mutation` or `replication`"),
        Column("user", "string", "of the quota entity; `<default>` for the default one"),
        Column("client_id", "string", "likewise"),
        Column("key", "string", "Kafka's name of the quota or setting"),
        Column("value", "double", "-1: none"),
        Column("reason", "string", "why this value"),
        Column("effect", "string", "what it is predicted to do"),
        Column("confidence", "string", "`high`, `medium` or `low`, and why"),
        Column("clients_throttled", "bigint", "predicted; -1: does not apply"),
        Column("throttle_ms", "bigint", "predicted for the recorded time; -1: does not apply"),
        Column("peak_before", "double", "bytes/s of the busiest broker over 10 s; -1: does not apply"),
        Column("peak_after", "double", "predicted; -1: does not apply"),
    ),
    "recommend/needs": (
        *_ENTITY,
        Column("need", "double", "smallest candidate that does not throttle it; -1: none of them"),
        Column("quota", "double", "what is recommended for it; -1: unlimited"),
        Column("throttled", "boolean", "whether it will be throttled"),
        Column("throttle_ms", "bigint", "predicted, over all brokers, for the recorded time"),
    ),
    "recommend/forecasts": (
        *_ENTITY,
        Column(
            "highest", "double", "need of the recorded day that needed most, in bytes/s, from bytes by second"
        ),
        Column("expected", "double", "highest need of the days to come, likewise"),
        Column("quota", "double", "that with its margin"),
        Column("grade", "string", "`high`, `medium` or `low`"),
        Column("grounds", "string", "why"),
    ),
    "recommend/classes": (
        *_ENTITY,
        Column("rate", "double", "that it is promised, in bytes/s; a row for each client with an entry"),
        Column("ceiling", "double", "up to which it may borrow"),
        Column("weight", "double", ""),
        Column("waited_ms", "bigint", "predicted with these terms, in a simulation of bytes by second"),
        Column("today_ms", "bigint", "the same with the quotas in force"),
        Column("lent", "bigint", "bytes that it would borrow"),
    ),
    "recommend/shared": (
        Column("direction", "string", ""),
        _BROKER,
        Column("start_s", "bigint", "ten seconds from there on"),
        Column("promised", "double", "bytes/s that clients would use of their rates"),
        Column("lent", "double", "beyond them"),
    ),
    "recommend/curve": (
        Column("direction", "string", ""),
        _QUOTA,
        Column("clients", "bigint", ""),
        Column("clients_throttled", "bigint", "with this default and no override"),
        Column("requests_throttled_share", "double", ""),
        Column("throttle_ms", "bigint", "of all clients"),
        Column("bytes_delayed", "bigint", ""),
        Column("peak_10s", "double", "bytes/s of the busiest broker"),
    ),
    "recommend/before_after": (
        Column("direction", "string", ""),
        _BROKER,
        Column("start_s", "bigint", "ten seconds from there on"),
        Column("before", "double", "bytes/s"),
        Column("after", "double", "with the recommendation"),
    ),
    "evaluate/scores": (
        _RECORDING,
        *_ENTITY,
        Column("origin", "int", "days that the recommender has seen"),
        Column("horizon", "int", "days that its quota is scored on: 1 or 7"),
        _RECOMMENDER,
        Column("factor", "double", "by which its quota is multiplied; 1 is what it says"),
        Column("quota", "double", "bytes/s"),
        Column("need", "double", "bytes/s, of the day that needs most"),
        Column("slack", "double", "part of the quota that was not needed, mean of the days"),
        Column("waited", "double", "share of the day that the client would have waited, likewise"),
        Column("hurt", "double", "share of the days with more waits than are tolerated"),
        Column("behaves", "boolean", "false: of days on which it is to be held back"),
        Column("grade", "string", "stated confidence; empty of a recommender that states none"),
    ),
    "evaluate/summary": (
        _RECORDING,
        Column("horizon", "int", "1 or 7 days"),
        _RECOMMENDER,
        Column("clients", "bigint", "that behave, with a scored day"),
        Column("scores", "bigint", "of these clients"),
        *_intervals(
            ("slack", "mean"),
            ("waited", "mean"),
            ("hurt", "mean"),
            ("regret", "slack and 20 times waited, above the oracle's"),
        ),
        *_HOGS,
    ),
    "evaluate/fronts": (
        _RECORDING,
        Column("horizon", "int", "1 or 7 days"),
        _RECOMMENDER,
        Column("factor", "double", "by which all its quotas are multiplied"),
        Column("slack", "double", "mean over clients that behave"),
        Column("waited", "double", "likewise"),
    ),
    "evaluate/cases": (
        _RECORDING,
        Column("horizon", "int", "1 or 7 days"),
        Column("baseline", "string", "what the advice is compared with"),
        Column("slack", "double", "of the advice"),
        Column("waited", "double", "of the advice"),
        Column("baseline_waited", "double", "of the baseline, multiplied to have the same slack"),
        Column("inside", "boolean", "the advice lets clients wait no longer than that"),
        Column("dominated", "boolean", "the baseline as it is has less slack and fewer waits"),
    ),
    "evaluate/terms": (
        _RECORDING,
        *_ENTITY,
        Column("origin", "int", "days that the recommender has seen"),
        Column("horizon", "int", "days that its terms are scored on: 1 or 7"),
        _TERMS_RECOMMENDER,
        Column("waited", "double", "share of the day that the client would have waited, mean of the days"),
        Column("hurt", "double", "share of the days with more waits than are tolerated"),
        Column(
            "kept",
            "double",
            "share of the seconds in which it wanted something, with at least 97 % of its rate, or of what it wanted",
        ),
        Column("passed", "double", "share of its bytes that passed on their day"),
        Column("behaves", "boolean", "false: of days on which it is to be held back"),
    ),
    "evaluate/carried": (
        _RECORDING,
        Column("direction", "string", "`produce` or `fetch`"),
        Column("origin", "int", "days that the recommender has seen"),
        Column("horizon", "int", "1 or 7 days; those on which a client is to be held back are left out"),
        _TERMS_RECOMMENDER,
        Column("carried", "bigint", "bytes of all clients that passed on their day"),
        Column("possible", "bigint", "that were wanted in each second, late ones too, up to the capacity"),
    ),
    "evaluate/terms_summary": (
        _RECORDING,
        Column("horizon", "int", "1 or 7 days"),
        _TERMS_RECOMMENDER,
        Column("clients", "bigint", "that behave, with a scored day"),
        Column("scores", "bigint", "of these clients"),
        *_intervals(
            ("waited", "mean"), ("hurt", "mean"), ("kept", "mean"), ("regret", "waited, above the oracle's")
        ),
        *_HOGS,
        Column("carried", "double", "carried over possible; -1: no day without a client to be held back"),
        Column("carried_low", "double", "the same, 2.5 % of draws of origins"),
        Column("carried_high", "double", "the same, 97.5 % of them"),
    ),
    "evaluate/calibration": (
        _RECORDING,
        Column("grade", "string", "`high`, `medium` or `low`"),
        Column("scores", "bigint", "next days of clients that behave"),
        Column("held", "double", "share of them on which the quota was enough"),
    ),
}


def columns_of(table: str) -> list[str]:
    """Return the names of a table's columns."""
    return [column.name for column in TABLES[table]]


def ddl(columns: Iterable[Column]) -> str:
    """Return columns as a schema in Spark's notation.

    >>> ddl(TABLES["demand/span"])
    'start_s bigint, seconds bigint, recorded_seconds bigint, requests bigint'
    """
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def layout_problem(schema: "pa.Schema") -> str:
    """Compare a Parquet file's schema with that of a capture in the current version of the layout.

    Returns:
        The problem, as the end of a sentence that begins with the file's name; "" if there is none.
    """
    version = (schema.metadata or {}).get(SCHEMA_KEY.encode())
    if version is None:
        return f"is Parquet, and no capture of Sluice: its metadata has no {SCHEMA_KEY}"
    if version != str(SCHEMA_VERSION).encode():
        said = version.decode("utf-8", "replace")
        age = "an older" if said.isdigit() and int(said) < SCHEMA_VERSION else "another"
        return f"was written by {age} version of the layout ({said}; this is {SCHEMA_VERSION})"
    for column in COLUMNS:
        if column.name not in schema.names:
            return f"has no column {column.name}"
        kind = str(schema.field(column.name).type)
        plain = "list" if column.type == "list<struct>" else column.type
        if plain not in kind:
            return f"has a column {column.name} of type {kind}, which should be {column.type}"
    return ""
