"""Kafka's own quota arithmetic as a throttle, for comparison: the oracle of kip13 in simulation.

Written from kafka-quotas.md §1 and not from our code: produce is recorded and then compared; fetch is recorded when its
response is ready, compared, and taken back with an empty response if it is too much. Sums are made from a plain list of
samples each time; nothing is cached.
"""

import math
from dataclasses import dataclass, field

from quotas.limiters.limiter import ADMITTED, Decision, Flow


@dataclass(slots=True)
class Sample:
    """One sample of the window."""

    start_ms: int
    last_ms: int
    total: int = 0


@dataclass(slots=True)
class KafkaSensor:
    """One identity's rate at one broker, Kafka 3.8 and later."""

    limit: float
    number: int = 11
    length_ms: int = 1000
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: int, now_ms: int) -> None:
        """`SampledStat.record`."""
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        if now_ms - self.samples[self.current].start_ms >= self.length_ms:
            self.current = (self.current + 1) % (self.number + 1)
            if self.current == len(self.samples):
                self.samples.append(Sample(now_ms, now_ms))
            self.samples[self.current] = Sample(now_ms, now_ms)
        self.samples[self.current].total += value
        self.samples[self.current].last_ms = now_ms

    def window_ms(self, now_ms: int) -> int:
        """`Rate.windowSize`, after `SampledStat.purgeObsoleteSamples`."""
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        for index, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= self.number * self.length_ms:
                self.samples[index] = Sample(now_ms, now_ms)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self.samples)
        full = elapsed_ms // self.length_ms
        if full < self.number - 1:
            elapsed_ms += (self.number - 1 - full) * self.length_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, now_ms: int) -> int:
        """`ClientQuotaManager`: 0, or X = (O − T) / T · W."""
        window_ms = self.window_ms(now_ms)
        observed = sum(sample.total for sample in self.samples) / (window_ms / 1000)
        if observed <= self.limit:
            return 0
        return math.floor((observed - self.limit) / self.limit * window_ms + 0.5)

    def produce(self, size: int, now_ms: int) -> int:
        """Appended already: the throttle time of the response."""
        self.record(size, now_ms)
        return self.throttle_ms(now_ms)

    def fetch(self, size: int, now_ms: int) -> int:
        """Data is ready: 0 = it is sent; else the throttle time of the empty response that is sent instead."""
        self.record(size, now_ms)
        throttle_ms = self.throttle_ms(now_ms)
        if throttle_ms:
            self.record(-size, now_ms)
        return throttle_ms


@dataclass(slots=True)
class KafkaGate:
    """The sensor as a channel of the simulated world sees it."""

    sensor: KafkaSensor

    def flow(self) -> Flow:
        """Kafka keeps nothing per channel."""
        return Flow()

    def leave(self, flow: Flow, now_ms: int) -> None:
        """Nothing to give back."""

    def produce(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Appended, recorded, throttled."""
        return _decision(self.sensor.produce(size, now_ms))

    def fetch(self, flow: Flow, now_ms: int) -> Decision:
        """Kafka reads first."""
        return ADMITTED

    def fetch_max_bytes(self, flow: Flow, requested: int, now_ms: int) -> int:
        """KAFKA-9677: N - 1 samples of quota."""
        return min(
            requested, int(self.sensor.limit * (self.sensor.number - 1) * self.sensor.length_ms / 1000)
        )

    def fetched(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Recorded, or taken back and throttled."""
        return _decision(self.sensor.fetch(size, now_ms))


def _decision(throttle_ms: int) -> Decision:
    return Decision(throttle_ms=throttle_ms) if throttle_ms else ADMITTED
