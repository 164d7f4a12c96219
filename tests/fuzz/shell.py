"""Shows bytes to a channel as `proxy.net.pump` does, each call timed: kept bytes again, passthrough bytes not at all.

What goes out is thrown away. Time stands still but where a script moves it, or a request has to wait.
"""

from collections import deque
from typing import Final

from proxy.channel import MORE, PASS, REFUSE, REPLACE, WAIT, Direction, Machine, Question, errors
from tests.fuzz.stopwatch import timed
from tests.support.playbook import local_response_due, ordered_job

READ_BYTES_MAX: Final = 64 * 1024
_CUT_BYTES_MAX: Final = 512  # of what is sent at once: what follows is the same again, and would take time
# The largest frame that is kept whole, its prefix, and a read.
_KEPT_BYTES_MAX: Final = (
    max(
        *errors.REQUEST_BYTES_MAX.values(),
        *errors.RESPONSE_BYTES_MAX.values(),
        errors.REPLICA_FETCH_BYTES_MAX,
    )
    + 4
    + READ_BYTES_MAX
)
_ORDERS_MAX: Final = 50_000  # of one read: an empty bare token has four bytes
_RESUMED_MAX: Final = 100


class _Stream:
    """One direction of the connection."""

    def __init__(self, direction: Direction, label: str) -> None:
        self.direction = direction
        self.label = label
        self.kept = bytearray()
        self.source: deque[bytes] = deque()
        self.waiting = self.refused = False
        self.piece_bytes = READ_BYTES_MAX

    def read(self, now_ms: int) -> None:
        """Take what has come, as far as nothing has to wait."""
        while self.source and not self.waiting:
            data = self.source.popleft()
            at = 0
            while at < len(data) and not self.waiting:
                size = self.piece_bytes if at < _CUT_BYTES_MAX else READ_BYTES_MAX
                piece = data[at : at + size]
                at += self._take(piece, now_ms)
            if at < len(data):
                self.source.appendleft(data[at:])

    def _take(self, piece: bytes, now_ms: int) -> int:
        direction = self.direction
        if direction.verdict.passthrough > 0 and not self.kept:
            passed = min(len(piece), direction.verdict.passthrough)
            direction.passed(passed, now_ms * 1_000_000)
            if not direction.verdict.passthrough:
                self.show(now_ms)
            return passed
        known = bool(self.kept)
        self.kept += piece
        if not known or len(self.kept) >= direction.verdict.need:
            self.show(now_ms)
        return len(piece)

    def show(self, now_ms: int) -> None:
        """Show what is kept and carry out the orders."""
        direction, buf, start = self.direction, self.kept, 0
        for _ in range(_ORDERS_MAX):
            count = timed(self.label, direction.receive, buf, start, len(buf), now_ms * 1_000_000).passing
            assert 0 <= count <= len(buf) - start, "more is passed than was shown"
            start += count
            job = ordered_job(direction)
            if job is not None:
                job.run()  # beside the loop: its time is not bounded
            elif direction.verdict.order == REPLACE:
                assert 0 <= direction.verdict.drop <= len(buf) - start, "more is left out than was shown"
                start += direction.verdict.drop
            else:
                break
        else:
            raise AssertionError("a direction orders for ever")
        assert direction.verdict.order in (PASS, MORE, WAIT, REFUSE), "there is no such order"
        assert direction.verdict.order != PASS or start == len(buf), "PASS leaves nothing over"
        assert direction.verdict.order != MORE or direction.verdict.need > len(buf) - start, (
            "what is needed is there"
        )
        self.kept = buf[start:]
        assert len(self.kept) <= _KEPT_BYTES_MAX, "what is kept is bounded"
        self.waiting = direction.verdict.order in (WAIT, REFUSE)
        self.refused = direction.verdict.order == REFUSE


class Shell:
    """A channel between what a script says for both peers.

    Attributes:
        question: what the channel has asked the shell, without a response yet.
    """

    def __init__(self, channel: Machine) -> None:
        self.channel = channel
        self.now_ms = 1_000
        self.question: Question | None = None
        self._requests = _Stream(channel.requests, "")
        self._responses = _Stream(channel.responses, "")

    def cut(self, size: int) -> None:
        """Have everything come in pieces of this size from now on."""
        self._requests.piece_bytes = self._responses.piece_bytes = max(size, 1)

    def client(self, data: bytes, label: str) -> None:
        """The client sends something; time goes on until it is taken."""
        requests = self._requests
        requests.label = f"request {label}"
        requests.source.append(data)
        if requests.waiting and requests.direction.verdict.until_ms > self.now_ms:
            self.now_ms = requests.direction.verdict.until_ms
        self._go_on()

    def broker(self, data: bytes, label: str) -> None:
        """The broker sends something."""
        self._responses.label = f"response {label}"
        self._responses.source.append(data)
        self._go_on()

    def later(self, milliseconds: int) -> None:
        """Time goes on."""
        self.now_ms += milliseconds
        self._go_on()

    def respond_to_question(self, response: bytes) -> None:
        """The shell has found the response to a question."""
        self.channel.responded(response)
        self._go_on()

    def _go_on(self) -> None:
        requests, responses = self._requests, self._responses
        for _ in range(_RESUMED_MAX):
            if requests.refused:
                return
            if requests.waiting and requests.direction.verdict.until_ms <= self.now_ms:
                requests.waiting = False
                requests.show(self.now_ms)
            requests.read(self.now_ms)
            self._ask()
            if local_response_due(self.channel):
                responses.show(self.now_ms)
            responses.read(self.now_ms)
            self._ask()
            if not responses.direction.verdict.signal:
                return
            responses.direction.take_signal()
            if not requests.waiting or not requests.direction.verdict.until_ms:
                requests.waiting = False
                requests.show(self.now_ms)

    def _ask(self) -> None:
        self.question = self._requests.direction.take_signal() or self.question
