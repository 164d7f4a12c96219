"""Forged quotas, written into a topic at a broker by a process of its own.

    python -m tests.support.record_flood BOOTSTRAP TOPIC RECORDS PER_SECOND keys|key

`keys`: each record has a key of its own; `key`: all have the same one. It ends by itself, and prints its seconds.
"""

import subprocess
import sys
import time

from quotas.definitions.entities import Entity
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.definitions.records import Author, key_of, value_of

FORGED_RATE = 1e12
_AUTHOR = Author("admin", "192.0.2.1:1", "2026-01-31T12:00:00.000Z")
_AT_ONCE = 1_000


def begin(
    bootstrap: str, topic: str, records: int, per_second: int, *, one_key: bool = False
) -> "subprocess.Popen[str]":
    """Begin to write; wait for the process to know that all are acknowledged."""
    words = [bootstrap, topic, str(records), str(per_second), "key" if one_key else "keys"]
    line = [sys.executable, "-m", __spec__.name, *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


def main(bootstrap: str, topic: str, records: int, per_second: int, *, one_key: bool) -> None:
    """Write the records, and wait until they are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    value = value_of(FORGED_RATE, _AUTHOR)
    began = time.monotonic()
    for first in range(0, records, _AT_ONCE):
        for number in range(first, min(records, first + _AT_ONCE)):
            name = "one" if one_key else f"junk-{number}"
            producer.produce(topic, key=key_of(Entity(client_id=name), PRODUCER_BYTE_RATE), value=value)
        producer.poll(0)
        time.sleep(max(0.0, began + first / per_second - time.monotonic()))
    left = producer.flush(120)
    print(f"{time.monotonic() - began:.1f}")
    sys.exit(left > 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), one_key=sys.argv[5] == "key")
