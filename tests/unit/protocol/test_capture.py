"""The captured row as data: what readers and writers build on."""

from protocol.capture import COLUMNS, PARTITION_FIELDS, SCHEMA_VERSION

# Version 1, as it was published: a changed name or type needs a new version number.
VERSION_1 = (
    "wall_ms:int64 mono_us:int64 process:string connection:int64 seq:int64 principal:string client_id:string "
    "ip:string listener:string broker:int32 api_key:int16 api_version:int16 request_bytes:int64 "
    "response_bytes:int64 upstream_us:int64 throttle_ms:int32 delay_ms:int32 quota:string mutations:int32 "
    "partitions:list<struct>"
)
PARTITIONS_1 = "topic:string partition:int32 bytes:int64 records:int32"


def test_columns_are_those_of_the_schema_version() -> None:
    assert SCHEMA_VERSION == 1
    assert " ".join(f"{column.name}:{column.type}" for column in COLUMNS) == VERSION_1
    assert " ".join(f"{column.name}:{column.type}" for column in PARTITION_FIELDS) == PARTITIONS_1
