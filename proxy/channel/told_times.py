"""Which throttle times are told in responses (KIP-219), and which are only waited for.

KIP-219 has the broker mute the channel and tell the client for how long; the client need not know it for the quota to
hold. Policy `schedule` throttles each request for a little, where Kafka lets several pass and then throttles for long,
and several clients write a log line for each time that is told: a Java 4.4 client a WARN line. So with `schedule` a
short time is told only if none was told for a while on this connection; the others are waited for in the same way: the
next request is not read before the mute is over. What was not told is not added to a later one, since a client that
waits by itself would wait for it twice.

Long times are always told: a client that knows of one does not run into its request timeout. So is the time in an empty
response to a Fetch: without one, an empty response to a full Fetch is invalid. So is a partition mutation's: a client
that returns sooner is refused again. The times of `kip13` are Kafka's, and told as there.
"""

from typing import Final

__all__ = ["TELL_EVERY_MS", "TOLD_ALWAYS_MS", "is_told"]

# A tenth of the shortest default of a client's timeout (franz-go's 10 s): five requests sent together wait for half.
TOLD_ALWAYS_MS: Final = 1000
TELL_EVERY_MS: Final = 5000
_NEVER_MS: Final = 0  # no time was told yet


def is_told(throttle_ms: int, told_at_ms: int, now_ms: int) -> bool:
    """Whether a throttle time is told by a response under `schedule`.

    Args:
        told_at_ms: when one was last told on this connection; 0 for never.

    >>> is_told(15, 0, 7_000), is_told(15, 7_000, 11_999), is_told(15, 7_000, 12_000), is_told(1000, 7_000, 7_300)
    (True, False, True, True)
    """
    if throttle_ms >= TOLD_ALWAYS_MS or told_at_ms == _NEVER_MS:
        return True
    # A response may be decided on twice, by two quotas.
    return now_ms - told_at_ms >= TELL_EVERY_MS or now_ms == told_at_ms
