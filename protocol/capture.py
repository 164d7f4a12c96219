"""The captured row as data: its columns, their types and units, and the version of this layout.

There is one row for each request, without payloads: the proxy writes rows as Parquet, `offline` reads them. The proxy
derives pyarrow's schema from this table and `offline` Spark's; types have Arrow's names. A file has the version of its
layout under `SCHEMA_KEY` in its metadata; a reader refuses unknown versions.

A request is identified by (process, connection, seq): requests of a connection are numbered in order of arrival,
whatever the order of rows. `mono_us` orders the rows of one process and measures intervals; `wall_ms` is the wall
clock, which may jump. Both refer to the time at which the request was handled: after its header was read, or after the
mute or hold before it; the request arrived `delay_ms` earlier.

`proxy.capture` writes the Parquet files; `proxy.channel` measures the values.
"""

from typing import Final, NamedTuple

SCHEMA_VERSION: Final = 1
SCHEMA_KEY: Final = "sluice.capture.schema"
# Only in files that no proxy wrote (`sluice-offline import`): the highest confidence that advice from them may have,
# and what they cannot know, as "medium: from a packet capture, ...".
SOURCE_KEY: Final = "sluice.capture.source"

# A directory holds `capture-<process>-<n>.parquet`; incomplete files have another suffix, and are not read.
FILE_PREFIX: Final = "capture-"
FILE_SUFFIX: Final = ".parquet"
UNFINISHED_SUFFIX: Final = ".inprogress"

# Instead of a missing number: no response, no request to a broker, records not counted.
NONE: Final = -1


class Column(NamedTuple):
    """A column of the captured table, or a field of a struct in it.

    Attributes:
        type: Arrow's name of its type, such as "int64" or "list<struct>".
        meaning: its description, with the unit; "" if the name says it.
    """

    name: str
    type: str
    meaning: str


# The fields of one entry of `partitions`.
PARTITION_FIELDS: Final = (
    Column("topic", "string", "name; its id as 32 hexadecimal digits where no name is known"),
    Column("partition", "int32", "-1: the sum of the partitions that were not captured separately"),
    Column("bytes", "int64", "of the record batches"),
    Column("records", "int32", "how many; -1 where not known"),
)

# No value is null: a missing one is -1 or "".
COLUMNS: Final = (
    Column("wall_ms", "int64", "UTC, ms since 1970"),
    Column("mono_us", "int64", "the process's monotonic clock, us"),
    Column("process", "string", "id of the run, whose clock mono_us is"),
    Column("connection", "int64", "number of the client's connection in that run"),
    Column("seq", "int64", "number of the request on its connection, from 0"),
    Column("principal", "string", "user; ANONYMOUS without any, empty where it cannot be read"),
    Column("client_id", "string", "of the request's header; empty for none"),
    Column("ip", "string", "the client's, behind the PROXY protocol too"),
    Column("listener", "string", "name of the listener it came to"),
    Column("broker", "int32", "id of the broker it was for; -1: not known by id"),
    Column("api_key", "int16", ""),
    Column("api_version", "int16", ""),
    Column("request_bytes", "int64", "the frame, without its length prefix"),
    Column(
        "response_bytes",
        "int64",
        "of the response, as Kafka charges a Fetch: without prefix and header tags; -1: none",
    ),
    Column(
        "upstream_us", "int64", "from its last forwarded byte to the response's first; -1: local response"
    ),
    Column("throttle_ms", "int32", "throttle time that was decided"),
    Column("delay_ms", "int32", "how long it was kept from the broker: held, and muted before it"),
    Column("quota", "string", "kind of the quota that decided; empty: none was exceeded"),
    Column("mutations", "int32", "partition mutations it was charged with"),
    Column("partitions", "list<struct>", "Produce and Fetch: bytes and records by topic and partition"),
)

# A later column of the same version: a file of an earlier release has none, and no reader demands it.
CLASS: Final = Column(
    "class", "string", "Produce and Fetch: code of the entity whose bucket the request counted against"
)

# An additional column if frames are captured.
FRAME: Final = Column(
    "frame", "binary", "the whole request with its length prefix; empty where it was not kept"
)
FRAMES: Final = ("off", "blank", "keep")
