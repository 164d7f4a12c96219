"""The batches that a channel was given lately, and a max_bytes that ends where a batch ends (KIP-74).

A broker cuts the records of a response at max_bytes, except its first batch, which is always whole. Consumers drop a
batch that is cut and fetch it again, so its bytes are charged and of no use. `whole_batches` reduces a max_bytes to
what will probably not be cut:

- Batches of one size, as producers with more to send than batch.size make them: a multiple of that size.
- Batches of different sizes: where the next one ends is not known. If fewer than CUT_BATCHES_MIN fit, a throttled
  channel asks for one batch at a time. This costs more requests, so not if the batches are small, and more round trips,
  so not if these take too long. If more fit, a part of one batch is 2 % on average.

It never increases max_bytes, and a smaller max_bytes brings no more bytes. So the bounds of `under_way` hold whatever
sizes a client writes; wrong sizes cost this client bytes or requests.

A response of less than one part in NEVER_CUT_SHARE of what it might have brought was not cut, and is not looked at: a
consumer that reads at the log's end does not pay for this.

Of a channel two sizes are kept (`Flow.batch_least`, `Flow.batch_most`). Each response shows one: its first batch.
"""

from typing import Final

from quotas.limiters.limiter import Flow
from quotas.limiters.under_way import FETCH_QUANTUM_MS

# One size: the largest and the smallest differ by at most one part in this many.
ONE_SIZE_SHARE: Final = 64
# The sizes kept move towards a size between them by one part in this many at each response.
FORGET_SHARE: Final = 8
# If at least this many batches of different sizes fit, a response may end within one.
CUT_BATCHES_MIN: Final = 25
# More than CUT_BATCHES_MIN, since a throttled channel may ask for a single batch.
NEVER_CUT_SHARE: Final = 32
# Smaller batches are not asked for one by one: half the default of batch.size.
ALONE_BYTES_MIN: Final = 8_192


def record_first_batch(flow: Flow, size: int) -> None:
    """Register the size in bytes of the first batch in a response; 0 if it is not known.

    >>> flow = Flow()
    >>> for size in (16_000, 16_400, 16_000):
    ...     record_first_batch(flow, size)
    >>> flow.batch_least, flow.batch_most
    (16000, 16350)
    """
    if not size:
        return
    least, most = flow.batch_least, flow.batch_most
    flow.batch_least = size if size <= least or not least else least + (size - least) // FORGET_SHARE
    flow.batch_most = size if size >= most else most - (most - size) // FORGET_SHARE


def may_be_cut(flow: Flow, size: int) -> bool:
    """Whether a response of this size may have been cut; if not, the sizes seen before are forgotten.

    >>> flow = Flow(granted=64_000, batch_least=16_000, batch_most=16_000)
    >>> may_be_cut(flow, 2_000), may_be_cut(flow, 1_999), flow.batch_most
    (True, False, 0)
    """
    if size * NEVER_CUT_SHARE >= flow.granted:
        return True
    if flow.batch_most:  # it reads at the log's end now
        flow.batch_least = flow.batch_most = 0
    return False


def whole_batches(flow: Flow, max_bytes: int, share: int, late_ms: int) -> int:
    """Return a max_bytes, at most the given one, at which a response probably ends with a whole batch.

    Args:
        flow: the channel.
        max_bytes: the bytes that its Fetch may ask for.
        share: the bytes that it may ask for after responses as large as possible: FETCH_QUANTUM_MS of its rate.
        late_ms: the time from the end of its last mute to its Fetch. One batch in each takes too long for its rate if
            this is more than half the time of a batch.

    >>> flow = Flow(batch_least=16_000, batch_most=16_200)
    >>> whole_batches(flow, 50_000, 50_000, late_ms=1)  # three, and 200 bytes
    48800
    >>> flow.batch_least = 2_000
    >>> whole_batches(flow, 50_000, 50_000, late_ms=1)  # one, whatever its size
    1
    >>> whole_batches(flow, 50_000, 50_000, late_ms=100)  # 9,100 bytes every 91 ms are its rate
    50000
    >>> whole_batches(flow, 50_000, 1_000_000, late_ms=1)  # 100 may be asked for in the end: a part of one is 1 %
    50000
    """
    least, most = flow.batch_least, flow.batch_most
    spread = most - least
    if spread <= most // ONE_SIZE_SHARE:  # the spread is added once: a batch may be larger than those seen
        room = max_bytes - spread
        return max_bytes - room % most if room > most > 0 else max_bytes
    middle = (least + most) // 2
    if (
        middle >= ALONE_BYTES_MIN
        and share < middle * CUT_BATCHES_MIN
        and 2 * late_ms * share <= middle * FETCH_QUANTUM_MS
    ):
        return 1
    return max_bytes
