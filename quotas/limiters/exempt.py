"""The limiter of a class that is exempt: its bytes are counted and never delayed (`quotas.sharing.capacities`).

What it uses is taken from what other classes of the capacity may borrow.
"""

# ruff: noqa: ARG002 - a limiter's interface
from quotas.limiters.limiter import ADMITTED, Decision, Flow
from quotas.limiters.schedule import ScheduledLimiter


class ExemptLimiter(ScheduledLimiter):
    """A limiter that admits everything; its throttles count the bytes."""

    __slots__ = ()

    def produce(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Admit a Produce."""
        return ADMITTED

    def announce(self, flow: Flow, missing: int, now_ms: int) -> None:
        """Register what the channel counts down as it arrives; no charge is given back."""
        flow.announced = missing
        flow.announced_ms = now_ms

    def request_arrived(self, flow: Flow) -> None:
        """Do nothing: nothing was announced."""

    def fetch(self, flow: Flow, now_ms: int) -> Decision:
        """Admit a Fetch."""
        return ADMITTED

    def fetch_max_bytes(self, flow: Flow, requested: int, now_ms: int) -> int:
        """Return the requested max_bytes."""
        return requested

    def fetched(self, flow: Flow, size: int, now_ms: int) -> Decision:
        """Admit a response."""
        return ADMITTED

    def delivered(self, size: int, now_ms: int) -> Decision:
        """Admit a response."""
        return ADMITTED

    def observe(self, flow: Flow, size: int, now_ms: int, consumes: bool) -> int:
        """Return that nothing would wait."""
        return 0
