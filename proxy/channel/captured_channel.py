"""Attaches capture to a new channel; if whole requests are kept, its request direction reports what it forwards."""

from proxy.channel.capture_rows import Tap
from proxy.channel.captured import Capture
from proxy.channel.channel import Channel
from proxy.channel.in_flight import Buffer
from proxy.channel.requests import RequestDirection
from proxy.channel.state import ChannelState
from proxy.channel.verdict import Verdict


class _KeptRequests(RequestDirection):
    """The request direction of a channel whose whole requests are kept."""

    __slots__ = ("_capture",)

    def __init__(self, state: ChannelState, capture: Capture) -> None:
        super().__init__(state, capture.handled)
        self._capture = capture

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Handle the bytes as `RequestDirection` does, and report what is forwarded."""
        self._capture.begin_buffer(start)
        verdict = super().receive(buf, start, end, now_ns)
        self._capture.end_buffer(self, buf, start + verdict.passing)
        return verdict


def capture(channel: Channel, tap: Tap) -> None:
    """Attach capture to a new channel."""
    made = Capture(channel.state, tap)
    kept = made.keeper is not None
    requests = _KeptRequests(channel.state, made) if kept else RequestDirection(channel.state, made.handled)
    channel.requests = made.requests = requests
