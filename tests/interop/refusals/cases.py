"""The cases of `make refusals`: client family × way to refuse × acks × idempotence."""

import dataclasses
from typing import Final

from tests.interop.refusals.measure import Setting
from tests.interop.refusals.script import Script, Way

CODES: Final = (7, 19, 6, 5, 56, 13, 89, 8)
BEHIND_SECONDS: Final = 0.2
_ROUNDS: Final = 3

CLOSE: Final = Script(Way.CLOSE, rounds_max=_ROUNDS)
NOTHING: Final = Script(Way.CLOSE, every=0)
RESET: Final = Script(Way.RESET, rounds_max=_ROUNDS)


def by_code(code: int, *, behind: bool) -> Script:
    """Refuse by an error code, what is pipelined behind a refused request as well or not."""
    return Script(
        Way.ERROR, error_code=code, behind_seconds=BEHIND_SECONDS if behind else 0.0, rounds_max=_ROUNDS
    )


# With default settings.
WAYS: Final = (
    NOTHING,
    CLOSE,
    RESET,
    *(by_code(code, behind=True) for code in CODES),
    by_code(7, behind=False),
    by_code(19, behind=False),
)
# With other settings.
FEWER_WAYS: Final = (CLOSE, by_code(7, behind=True), by_code(7, behind=False))

_OFF: Final = (Setting("1"), Setting("all", "off"))
# What differs from the family's defaults.
SETTINGS: Final = {
    "java": _OFF,
    "librdkafka": (Setting("all", "on"), Setting("1")),
    "aiokafka": (Setting("all"), Setting("all", "on")),
    "kafka-python": _OFF,
    "franz-go": _OFF,
    "sarama": (Setting("all"), Setting("all", "on")),
    "kafkajs": (Setting("1"), Setting("all", "on"), Setting(calls=5)),
}
DEFAULTS: Final = {
    "java": "acks=all, idempotent, 5 in flight, delivery.timeout.ms 120 s",
    "librdkafka": "acks=all, not idempotent, 1,000,000 in flight, message.timeout.ms 300 s",
    "aiokafka": "acks=1, not idempotent, 1 in flight a partition, request_timeout_ms 40 s for all retries",
    "kafka-python": "acks=all, idempotent, 5 in flight, delivery_timeout_ms 120 s",
    "franz-go": "acks=all, idempotent, 5 in flight (1 where not idempotent), no limit of retries or time",
    "sarama": "acks=1, not idempotent, 1 in flight a partition, Producer.Retry.Max 3",
    "kafkajs": "acks=all, not idempotent, one call after the other, 5 retries (idempotent: no limit)",
}

# More and smaller requests: without responses a client is soon done.
ACKS_0: Final = Setting("0", records=1000, size=50_000)
ACKS_0_WAYS: Final = tuple(
    Script(way, every=10, rounds_max=_ROUNDS, hold_seconds=0.1, pace_seconds=0.005)
    for way in (Way.CLOSE, Way.RESET)
)
# KafkaJS makes one request of a transaction's records, which is not to be larger than brokers take.
TRANSACTION: Final = Setting(transactional=True, records=30, size=30_000)
TWO_WAYS: Final = (CLOSE, by_code(7, behind=True))
TRANSACTION_WAYS: Final = tuple(dataclasses.replace(way, every=1) for way in TWO_WAYS)

# Whether a window is enough to catch what is behind, which a close needs no window for: many runs of the family that
# pipelines most and is not idempotent.
AGAIN_FAMILY: Final = "librdkafka"
AGAIN_RUNS: Final = 10
AGAIN_WAYS: Final = TWO_WAYS

ENDLESS: Final = Setting(records=30)
ENDLESS_WAYS: Final = (
    Script(Way.CLOSE, always_after=2),
    # The default of quotas.hold_seconds_max, and longer than the two minutes of most families' deadlines.
    Script(Way.CLOSE, always_after=2, hold_seconds=15.0, always_seconds=150.0),
    Script(Way.ERROR, error_code=7, behind_seconds=0.05, always_after=2),
)
