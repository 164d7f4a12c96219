"""Recorded requests -> a plan of times and connections. Pure: no clock, no socket, no file.

A request is due at the time at which it arrived when it was recorded (`mono_us` less `delay_ms`, since delays by quotas
are not part of the client's demand), at the recorded speed or a multiple of it. Processes have separate clocks, which
are related by the wall time of their first rows. Each recorded connection becomes one connection, with its requests in
the recorded order even if rounding has changed their times.

SASL exchanges are not sent again: their tokens are not captured.
"""

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

import msgspec

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE

_NOT_SENT: Final = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE))


Size = Annotated[int, msgspec.Meta(ge=0, le=0x7FFFFFFF)]
"""The bytes of one request or partition, as Kafka's frames have it."""


class Part(msgspec.Struct, frozen=True):
    """One partition of a recorded Produce or Fetch, with the bytes and the number of its records."""

    topic: str
    partition: int
    bytes: Size
    records: int


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One captured request; its fields are described in `protocol.capture`.

    Attributes:
        frame: the request's bytes; empty if only its figures were captured.
    """

    wall_ms: int
    mono_us: int
    process: str
    connection: int
    seq: int
    client_id: str
    broker: int
    api_key: int
    api_version: int
    request_bytes: Size
    response_bytes: int
    upstream_us: int
    throttle_ms: int
    delay_ms: int
    partitions: tuple[Part, ...]
    frame: bytes = b""


class Planned(NamedTuple):
    """A request, when it is to be sent (us after the start), and the number of the connection that sends it."""

    due_us: int
    connection: int
    request: Recorded


class Plan(NamedTuple):
    """The requests of a replay and their times.

    Attributes:
        sends: the requests to send, in the order of their times.
        brokers: by connection number, the recorded broker; -1 if it is not known.
        left_out: the number of recorded requests whose API cannot be sent again.
    """

    sends: list[Planned]
    brokers: list[int]
    left_out: int

    @property
    def seconds(self) -> float:
        """The time in seconds from the first request to the last."""
        return self.sends[-1].due_us / 1e6 if self.sends else 0.0


def plan(recorded: Iterable[Recorded], speed: float, seconds: float = 0.0) -> Plan:
    """Return the plan that sends all requests, `speed` times as fast as they were recorded.

    Args:
        seconds: how much of the recorded time to replay; 0 for all of it.
    """
    requests = sorted(recorded, key=lambda row: (row.process, row.connection, row.seq))
    sent = [row for row in requests if row.api_key not in _NOT_SENT]
    offsets = _offsets(requests)
    numbers: dict[tuple[str, int], int] = {}
    brokers: list[int] = []
    arrivals: list[tuple[int, int, Recorded]] = []
    last_us: dict[int, int] = {}
    for row in sent:
        key = (row.process, row.connection)
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(brokers)
            brokers.append(row.broker)
        arrived_us = row.mono_us + offsets[row.process] - 1000 * row.delay_ms
        arrived_us = last_us[number] = max(arrived_us, last_us.get(number, arrived_us))
        arrivals.append((arrived_us, number, row))
    arrivals.sort(key=lambda entry: (entry[0], entry[1], entry[2].seq))
    first_us = arrivals[0][0] if arrivals else 0
    until_us = first_us + seconds * 1e6 if seconds else float("inf")
    sends = [
        Planned(int((arrived_us - first_us) / speed), number, row)
        for arrived_us, number, row in arrivals
        if arrived_us < until_us
    ]
    return Plan(sends, brokers, len(requests) - len(sends))


def _offsets(requests: Iterable[Recorded]) -> dict[str, int]:
    """Return, by process, the microseconds to add to its clock for a common one, from its earliest row."""
    earliest: dict[str, Recorded] = {}
    for row in requests:
        known = earliest.get(row.process)
        if known is None or row.mono_us < known.mono_us:
            earliest[row.process] = row
    return {process: 1000 * row.wall_ms - row.mono_us for process, row in earliest.items()}
