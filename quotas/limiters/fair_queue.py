"""Start-time fair queueing in bytes among the channels of one identity (the `schedule` policy).

A channel's *tag* is the virtual time, in bytes, at which its next request begins: the end of its own last request, or
the virtual time if that is later. The channel with the lowest tag is next; equal tags are in order of arrival. So
channels that always have requests waiting get equal bytes whatever the size of their requests, and a channel that sends
little does not wait long.

The queue has one place for every Produce that waits at its header, and one for every channel that was told to retry: a
reservation of the size of its last request. Virtual time is the start of the last request that passed, or of the first
place if that is earlier. Two refinements, both found in simulation:

- A channel without a waiting request (its round trip is longer than the time between its slots) keeps up to half a
  burst of its share; otherwise large requests of others pass in every gap, one for each small request of this channel.
- A new channel starts where the virtual time was one to two bursts ago, so that a channel that came a moment earlier
  and took the whole burst does not stay ahead of it for a minute. Clients with a new channel for every request would
  hold the virtual time back for ever; so each new channel moves the mark, as if there were at least NEWCOMER_SHARE
  others.

Rates and limits are in `schedule`.
"""

from bisect import bisect_left, bisect_right
from itertools import compress
from operator import not_
from typing import Final

from quotas.limiters.limiter import GRACE_MS, Flow

# A held channel asks again by itself; one that is this late has been closed without notice.
HELD_GRACE_MS: Final = 5_000
# Clients with a new channel for every request leave at least N / (N + 1) of the rate to others, with N this number.
NEWCOMER_SHARE: Final = 8


class FairQueue:
    """A fair queue of the channels that share a quota; virtual time counts bytes.

    A channel's *tag* is the virtual time at which its next request begins. Its *place*, in order of tags, is a waiting
    request or a reservation for the next one. New channels begin at the *mark*, a virtual time of a while ago.
    """

    __slots__ = (
        "_mark",
        "_mark_before",
        "_mark_ms",
        "_newcomers",
        "_sizes",
        "_tags",
        "flows",
        "lag_bytes",
        "virtual",
    )

    def __init__(self) -> None:
        self.lag_bytes = 0  # share that a channel without a waiting request keeps
        self.virtual = 0  # where the last request that passed began
        self._newcomers = 0
        self._mark = 0
        self._mark_ms = -1
        self._mark_before = 0
        # Three columns of one table: by tag, equal tags in order of arrival.
        self._tags: list[int] = []
        self._sizes: list[int] = []
        self.flows: list[Flow] = []

    def enter(self, flow: Flow) -> int:
        """Return the index of the channel's place, or the index at which `put` would insert one; inserts nothing.

        Without a place, the channel's tag (the virtual time at which its next request begins) is first raised to the
        present virtual time, or to the mark if the channel is new. The tag of a held Produce stays as it is.
        """
        if flow.queued:
            return self._index(flow)
        if flow.held_since_ms < 0:  # one that waits outside the queue keeps the tag it came with
            flow.tag = max(flow.tag, self._virtual_time() if flow.passed else self._mark_before)
        return bisect_right(self._tags, flow.tag)

    def index_after(self, flow: Flow) -> int:
        """Return the index of the place that a channel would get with its present tag, after its request has passed."""
        return bisect_right(self._tags, flow.tag)

    def bytes_ahead(self, flow: Flow, index: int) -> tuple[int, int]:
        """Return the least and the most bytes that pass before the place at `index`, which is this channel's.

        At least, each channel ahead sends one request; at most, each uses its fair share up to this channel's tag.
        """
        if not index:
            return 0, 0
        once = sum(self._sizes[:index])
        return once, max(once, index * flow.tag - sum(self._tags[:index]))

    def record_passed(self, flow: Flow, start: int, size: int, doubtful: int) -> None:
        """Register a request that passed, and set the channel's next tag.

        Args:
            start: the virtual time at which the request began.
            doubtful: the bytes that may never arrive; they do not move the mark at which new channels start.
        """
        self.virtual = max(self.virtual, start)
        if not flow.passed:
            flow.passed = True
            self._newcomers = max(self._newcomers, self._virtual_time()) + (size - doubtful) // (
                len(self.flows) + NEWCOMER_SHARE
            )
        flow.tag = start + size
        if not flow.waited:
            flow.tag = max(flow.tag, self.virtual - self.lag_bytes)

    def record_arrived(self, doubtful: int) -> None:
        """Move the mark at which new channels start by doubtful bytes that have arrived after all."""
        self._newcomers = max(self._newcomers, self._virtual_time()) + doubtful // (
            len(self.flows) + NEWCOMER_SHARE
        )

    def put(self, flow: Flow, size: int) -> None:
        """Insert a place of `size` bytes for the channel, or change the size of its place."""
        if flow.queued:
            if flow.size != size:
                self._sizes[self._index(flow)] = size
        else:
            index = bisect_right(self._tags, flow.tag)
            self._tags.insert(index, flow.tag)
            self._sizes.insert(index, size)
            self.flows.insert(index, flow)
            flow.queued = True
        flow.size = size

    def remove(self, flow: Flow) -> None:
        """Remove the channel's place, if any."""
        if flow.queued:
            index = self._index(flow)
            del self._tags[index], self._sizes[index], self.flows[index]
            flow.queued = False

    def sweep(self, now_ms: int, mark_every_ms: int) -> None:
        """Remove the places of channels that did not retry in time.

        Once in `mark_every_ms`, also update the mark at which new channels start.
        """
        if now_ms >= self._mark_ms:
            self._mark_ms = now_ms + mark_every_ms
            self._mark_before, self._mark = self._mark, max(self._virtual_time(), self._newcomers)
        flows = self.flows
        kept = [
            now_ms <= flow.due_ms + (GRACE_MS if flow.held_since_ms < 0 else HELD_GRACE_MS) for flow in flows
        ]
        if all(kept):
            return
        # All at once: thousands may be late together, and removing one by itself moves all places behind it.
        for flow in compress(flows, map(not_, kept)):
            flow.queued = False
        self._tags = list(compress(self._tags, kept))
        self._sizes = list(compress(self._sizes, kept))
        self.flows = list(compress(flows, kept))

    def _virtual_time(self) -> int:
        tags = self._tags
        return tags[0] if tags and tags[0] < self.virtual else self.virtual

    def _index(self, flow: Flow) -> int:
        return self.flows.index(flow, bisect_left(self._tags, flow.tag))
