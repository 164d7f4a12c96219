"""A direction of a channel as a test wants it: a subclass says what `receive` does."""

from proxy.channel import Direction, Question, Verdict


class FakeDirection(Direction):
    """Has nothing for the other direction, and no job."""

    def __init__(self) -> None:
        self._verdict = Verdict()

    @property
    def verdict(self) -> Verdict:
        return self._verdict

    def passed(self, count: int, now_ns: int) -> None:
        self._verdict.passthrough -= count

    def recharge_due(self, now_ms: int) -> bool:
        return False

    def mid_frame(self) -> bool:
        return self._verdict.passthrough > 0

    def take_signal(self) -> Question | None:
        self._verdict.signal = False
        return None
