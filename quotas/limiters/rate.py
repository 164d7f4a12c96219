"""The sampled rate of KIP-13: bytes in the last N windows, and the wait until they are within the quota.

Kafka's arithmetic to the millisecond (Kafka 3.8 and later: `SampledStat`, `Rate`, `QuotaUtils`;
kafka-quotas.md §1.1-1.2):

- a ring of N + 1 samples; a sample older than its length is closed by the next record, which starts the next
  sample *at its own time*; idle time makes no samples;
- a sample whose last record is N windows old counts nothing and begins anew;
- the window W reaches from the oldest sample's start to now, and is stretched to at least N - 1 full samples;
- over the quota T when S / W > T, strictly; then the wait is X = (O - T) / T * W, with O = S / W, rounded.

Decisions on requests are in `throttles.bandwidth`; time is an argument. Recording is O(1): the sum, the oldest start
and the next time at which a sample can be obsolete are stored beside the ring.
"""

import math
from typing import Final

# Before any time there is: a clock may start below 0.
NEVER_MS: Final = -(1 << 60)


class SampledRate:
    """Bytes recorded over a moving window of samples.

    KIP-13's worked example: 5 MB/s for 9 s, then 15 MB at once; 60 MB where 50 MB are allowed make 2 s.

    >>> rate = SampledRate(samples=11, sample_ms=1000)
    >>> for second in range(9):
    ...     rate.record(5_000_000, second * 1000)
    >>> rate.record(15_000_000, 9000)
    >>> rate.window_ms(9000), rate.throttle_ms(5_000_000, 9000)
    (10000, 2000)
    """

    __slots__ = (
        "_current",
        "_keep_ms",
        "_lasts",
        "_next_ms",
        "_oldest_ms",
        "_sample_ms",
        "_samples",
        "_starts",
        "_sums",
        "purge_at_ms",
        "total",
    )

    def __init__(self, samples: int, sample_ms: int) -> None:
        assert samples >= 2, "the window is stretched to N - 1 samples"
        assert sample_ms >= 1, "time is counted in milliseconds"
        self._samples = samples
        self._sample_ms = sample_ms
        self._keep_ms = samples * sample_ms
        self._starts: list[int] = []
        self._lasts: list[int] = []
        self._sums: list[int] = []
        self._current = -1
        self._next_ms = NEVER_MS  # from then on a record starts another sample
        self._oldest_ms = 0
        self.purge_at_ms = 0  # before this time no sample can be obsolete
        self.total = 0  # S: bytes in all samples

    def record(self, value: int, now_ms: int) -> None:
        """Record `value` bytes; a negative value removes bytes that were recorded only to compute a throttle time."""
        if now_ms >= self._next_ms:
            self._advance(now_ms)
        current = self._current
        self._sums[current] += value
        self._lasts[current] = now_ms
        self.total += value

    @property
    def sample(self) -> tuple[int, int]:
        """The sample to which bytes were last added, as (index, start in ms); an argument for `take_back`."""
        return self._current, self._starts[self._current]

    @property
    def keep_ms(self) -> int:
        """The time in ms after which a recorded value has left the window."""
        return self._keep_ms

    def take_back(self, value: int, sample: tuple[int, int]) -> None:
        """Subtract bytes that were recorded in this sample, unless it has left the window.

        >>> rate = SampledRate(11, 1000)
        >>> rate.record(5_000_000, 0)
        >>> sample = rate.sample
        >>> rate.record(1_000_000, 2000)
        >>> rate.take_back(4_000_000, sample)
        >>> rate.total, rate.total_in(11_000)  # the first second has left the window
        (2000000, 1000000)
        >>> rate.take_back(1_000_000, sample)
        >>> rate.total
        1000000
        """
        place, start_ms = sample
        if start_ms in self._starts:  # it has not begun anew since
            if place >= len(self._starts) or self._starts[place] != start_ms:
                place = self._starts.index(start_ms)
            taken = min(value, self._sums[place])
            self._sums[place] -= taken
            self.total -= taken

    def elapse(self, ms: int) -> None:
        """Act as if `ms` more had passed since all records: a predicted wait, while quotas are not enforced.

        >>> rate = SampledRate(11, 1000)
        >>> rate.record(22_000, 0)
        >>> rate.throttle_ms(2_000, 0)  # 22 / 2 - 10 s
        1000
        >>> rate.elapse(600)
        >>> rate.throttle_ms(2_000, 0)
        400
        """
        self._starts = [start_ms - ms for start_ms in self._starts]
        self._lasts = [last_ms - ms for last_ms in self._lasts]
        self._next_ms -= ms
        self._oldest_ms -= ms
        self.purge_at_ms -= ms

    def trim(self, limit: float, now_ms: int) -> None:
        """Subtract the recorded bytes that exceed the limit (bytes/s), the latest first.

        >>> rate = SampledRate(11, 1000)
        >>> rate.record(22_000, 0)
        >>> rate.trim(2_000, 0)
        >>> rate.left(2_000, 0)
        0
        """
        excess = -self.left(limit, now_ms)
        for place in sorted(range(len(self._lasts)), key=self._lasts.__getitem__, reverse=True):
            if excess <= 0:
                return
            taken = min(excess, max(0, self._sums[place]))
            self._sums[place] -= taken
            self.total -= taken
            excess -= taken

    def spread(self, per_second: float, now_ms: int) -> None:
        """Add `per_second` bytes/s over the whole window; a negative rate subtracts recorded bytes.

        If the limit changes by the same rate, the room in the window stays the same, and grows only as time passes:
        each sample gets the bytes of the time since the sample before it.

        >>> rate = SampledRate(11, 1000)
        >>> rate.record(4_000, 0)
        >>> rate.left(1_000, 0)
        6000
        >>> rate.spread(500, 0)
        >>> rate.left(1_500, 0), rate.left(1_500, 1_000), rate.left(1_500, 2_000)
        (6000, 6000, 6500)
        """
        self.record(0, now_ms)
        begin_ms = now_ms - self.window_ms(now_ms)
        if per_second > 0:
            self._fill_gaps(begin_ms, now_ms)
        added = 0
        for place in sorted(range(len(self._lasts)), key=self._lasts.__getitem__):
            part = round(per_second * (self._lasts[place] - begin_ms) / 1000) - added
            added += part
            part = max(part, -self._sums[place]) if part < 0 else part
            self._sums[place] += part
            self.total += part

    def begin_full(self, per_second: float, now_ms: int) -> None:
        """Remove all records, and begin with a window in which `per_second` bytes/s were recorded throughout.

        >>> rate = SampledRate(11, 1000)
        >>> rate.begin_full(500, 0)
        >>> rate.left(500, 0), rate.left(500, 3_000), rate.left(500, 11_000)
        (0, 1000, 5000)
        """
        self._starts, self._lasts, self._sums = [], [], []
        self._current, self._next_ms, self.total = -1, NEVER_MS, 0
        self.spread(per_second, now_ms)

    def _fill_gaps(self, begin_ms: int, now_ms: int) -> None:
        """Insert empty samples where the window has none; its length stays the same, and the last record is now."""
        current = self._current
        ring = zip(self._starts, self._lasts, self._sums, strict=True)
        kept = sorted(one for place, one in enumerate(ring) if one[2] and place != current)
        filled: list[tuple[int, int, int]] = []
        at_ms = begin_ms
        for sample in [*kept, (self._starts[current], now_ms, self._sums[current])]:
            while at_ms < sample[0]:
                filled.append((at_ms, at_ms, 0))
                at_ms += self._sample_ms
            filled.append(sample)
            at_ms = sample[1] + self._sample_ms
        while len(filled) > self._samples + 1:
            # The two that are the nearest become one, which leaves the window with the later of them.
            place = min(range(1, len(filled) - 2), key=lambda place: filled[place + 1][1] - filled[place][1])
            one, other = filled[place : place + 2]
            filled[place : place + 2] = [(one[0], other[1], one[2] + other[2])]
        self._starts, self._lasts, self._sums = (list(column) for column in zip(*filled, strict=True))
        self._current = len(filled) - 1
        self._oldest_ms = self._starts[0]
        self.purge_at_ms = min(self._lasts) + self._keep_ms

    def window_ms(self, now_ms: int) -> int:
        """Return KIP-13's W in ms: the time since the oldest sample's start, at least the length of N - 1 samples."""
        if not self._starts:
            self._advance(now_ms)
        if now_ms >= self.purge_at_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        missing = self._samples - 1 - elapsed_ms // self._sample_ms
        if missing > 0:
            elapsed_ms += missing * self._sample_ms
        return max(1, elapsed_ms)

    def elapsed_ms(self, now_ms: int) -> int:
        """Return the time in ms since the oldest sample began, even if short; Kafka's `SimpleRate` divides by it
        (KIP-73).
        """
        if not self._starts:
            return 0
        if now_ms >= self.purge_at_ms:
            self._purge(now_ms)
        return now_ms - self._oldest_ms

    def total_in(self, now_ms: int) -> int:
        """Return the bytes recorded in the window, without samples that have left it."""
        if self._starts and now_ms >= self.purge_at_ms:
            self._purge(now_ms)
        return self.total

    def per_second(self, now_ms: int) -> float:
        """Return KIP-13's O: the observed rate over the window, in bytes/s."""
        window_ms = self.window_ms(now_ms)
        return self.total / (window_ms / 1000.0)

    def throttle_ms(self, limit: float, now_ms: int, also: int = 0) -> int:
        """Return KIP-13's X: the time in ms until the rate is within the limit; 0 if it is, or if that rounds to 0.

        Args:
            limit: KIP-13's T, in bytes/s.
            now_ms: the time of the decision, not before the last record.
            also: bytes to count that are not recorded; may be negative.
        """
        window_ms = self.window_ms(now_ms)  # first: it empties obsolete samples
        observed = (self.total + also) / (window_ms / 1000.0)
        if observed <= limit:
            return 0
        # The same floating-point steps as Kafka's, and Java's Math.round.
        return math.floor((observed - limit) / limit * window_ms + 0.5)

    def left(self, limit: float, now_ms: int) -> int:
        """Return the bytes that may be recorded now without exceeding `limit` (bytes/s); negative if it is exceeded."""
        window_ms = self.window_ms(now_ms)
        return math.floor(limit * window_ms / 1000.0) - self.total

    def empty_in_ms(self, now_ms: int) -> int:
        """Return the time in ms until all samples recorded so far have left the window."""
        lasts = [last_ms for last_ms, total in zip(self._lasts, self._sums, strict=True) if total]
        return max(0, max(lasts) + self._keep_ms - now_ms) if lasts else 0

    def _advance(self, now_ms: int) -> None:
        """Close the current sample, if there is one, and start the next one at this record's time."""
        self._next_ms = now_ms + self._sample_ms
        # N + 1: one sample more than the window, for the part of the oldest that still lies inside it.
        self._current = current = (self._current + 1) % (self._samples + 1)
        if not self._starts:
            self.purge_at_ms = now_ms + self._keep_ms
        if current >= len(self._starts):
            self._starts.append(now_ms)
            self._lasts.append(now_ms)
            self._sums.append(0)
        else:
            self.total -= self._sums[current]
            self._starts[current] = self._lasts[current] = now_ms
            self._sums[current] = 0
        self._oldest_ms = min(self._starts)

    def _purge(self, now_ms: int) -> None:
        """Empty the samples whose last record has left the window; they begin again now."""
        keep_ms = self._keep_ms
        for index, last_ms in enumerate(self._lasts):
            if now_ms - last_ms >= keep_ms:
                self.total -= self._sums[index]
                self._sums[index] = 0
                self._starts[index] = self._lasts[index] = now_ms
        self._oldest_ms = min(self._starts)
        self._next_ms = self._starts[self._current] + self._sample_ms
        # A lower bound until the next purge: last records only move forward.
        self.purge_at_ms = min(self._lasts) + keep_ms
