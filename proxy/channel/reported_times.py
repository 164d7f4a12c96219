"""Decides which throttle times are reported in responses (KIP-219); the channel is muted for all of them.

By KIP-219 a broker mutes the channel and tells the client for how long; the quota holds even if the client is not told.
Policy `schedule` throttles each request for a short time, while Kafka lets several pass and then throttles for a long
one; and several clients write a log line for each reported time (a Java 4.4 client at WARN). So under `schedule` a
short time is reported only if none was reported for a while on this connection. A time that was not reported is not
added to a later one, since a client that waits by itself would wait for it twice.

Always reported are long times, so that a client does not run into its request timeout; the time in an empty response to
a Fetch, which would be invalid without one if the Fetch is full; and the time of a partition mutation, since a client
that returns sooner is refused again. Under `kip13` all times are reported, as in Kafka.
"""

from typing import Final

# A tenth of the shortest default of a client's timeout (franz-go's 10 s): five requests sent together wait for half.
REPORTED_ALWAYS_MS: Final = 1000
REPORT_EVERY_MS: Final = 5000
_NEVER_MS: Final = 0  # no time was reported yet


def is_reported(throttle_ms: int, reported_at_ms: int, now_ms: int) -> bool:
    """Whether a response reports a throttle time under `schedule`.

    Args:
        reported_at_ms: when one was last reported on this connection; 0 for never.

    >>> is_reported(15, 0, 7_000), is_reported(15, 7_000, 11_999), is_reported(15, 7_000, 12_000)
    (True, False, True)
    >>> is_reported(1000, 7_000, 7_300)
    True
    """
    if throttle_ms >= REPORTED_ALWAYS_MS or reported_at_ms == _NEVER_MS:
        return True
    # A response may be decided on twice, by two quotas.
    return now_ms - reported_at_ms >= REPORT_EVERY_MS or now_ms == reported_at_ms
