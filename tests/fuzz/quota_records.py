"""Records of the quota topic: every client with the right to write there can write any bytes."""

from contextlib import suppress

from quotas.definitions.definitions import Definitions
from quotas.definitions.records import Author, RecordError, key_of, read_key, read_value, value_of
from tests.fuzz.draw import Draw
from tests.fuzz.stopwatch import timed

_AUTHOR = Author("fuzz", "192.0.2.1:1", "2026-01-31T12:00:00.000Z")


def quota_records(data: bytes) -> None:
    """Records, each a key and a value with two bytes for their lengths; a value of length 0 is a tombstone."""
    draw = Draw(data)
    definitions = Definitions()
    while draw:
        key, value = draw.take(draw.int16()), draw.take(draw.int16())
        with suppress(RecordError):
            entity, limit = timed("key", read_key, key)
            assert key_of(entity, limit) == key, "an entity has one spelling"
            number = timed("value", read_value, entity, limit, value or None)
            if number is None:
                definitions.put(entity, {})
                continue
            definitions.put(entity, {limit: number})
            assert read_value(entity, limit, value_of(number, _AUTHOR)) == number, (
                "what is read can be written"
            )
