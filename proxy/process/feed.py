"""Feeds one worker: the whole state when it starts, then the changes, in their order.

Pending changes are kept as keys, each once, so they are bounded by the state itself, even if a worker does not read for
long. The response to a question is sent after all changes that came before it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from protocol.errors import WireError
from protocol.messages.replica_session import Partition
from proxy.channel import Forward, OngoingMoves, PeerError, ShownMove
from proxy.config import Config
from proxy.control.cluster import BrokerMap
from proxy.net import Outcome
from proxy.process.link import FrameError
from proxy.process.messages import (
    PORTION,
    Answer,
    Brokers,
    Configure,
    Enforce,
    Moves,
    QuotaBatch,
    ReadCertificates,
    Refusal,
    TopicsNamed,
)
from quotas.definitions.definitions import Definitions

K = TypeVar("K")
V = TypeVar("V")

ANSWERS_MAX: Final = 10_000  # more than questions may wait


class State:
    """The state that the control process sends to its workers.

    Args:
        config: a worker's.
        definitions: the quotas in force; another thread may change them.
        names: all known names of topics.
    """

    def __init__(
        self,
        config: Config,
        definitions: Definitions,
        brokers: BrokerMap,
        names: Callable[[], Mapping[bytes, str]],
        moves: OngoingMoves | None,
    ) -> None:
        self.config = config
        self.definitions = definitions
        self.brokers = brokers
        self.names = names
        self.moves = moves
        self.enforcing = True


class Feed:
    """Feeds one life of a worker.

    Args:
        send: sends a message as soon as there is room; False if the link is closed.
    """

    def __init__(self, state: State, send: Callable[[object], Awaitable[bool]]) -> None:
        self._state = state
        self._send = send
        self._wake = asyncio.Event()
        self._quotas: dict[str, None] = {}
        self._names: dict[bytes, str] = {}
        self._answers: deque[tuple[int, Outcome]] = deque()
        self._certificates = False
        self._config = state.config
        self._enforcing = state.enforcing
        self._brokers_version = -1
        self._moves: Mapping[Partition, ShownMove] = {}

    def wake(self) -> None:
        """Send what has changed."""
        self._wake.set()

    def quota_changed(self, code: str) -> None:
        """Note that an entity's limits have changed."""
        self._quotas[code] = None
        self._wake.set()

    def topic_named(self, topic_id: bytes, name: str) -> None:
        """Note a topic's name."""
        self._names[topic_id] = name
        self._wake.set()

    def read_certificates(self) -> None:
        """Have certificates read again."""
        self._certificates = True
        self._wake.set()

    def answer(self, number: int, outcome: Outcome) -> None:
        """Send the outcome of a question, after all that has changed until now."""
        assert len(self._answers) < ANSWERS_MAX, "each belongs to a question, and these are bounded"
        self._answers.append((number, outcome))
        self._wake.set()

    async def run(self) -> None:
        """Send everything, then what changes, until the link is closed."""
        state = self._state
        await self._send_brokers()
        for names in _portions(dict(state.names())):
            await self._send(TopicsNamed(names))
        codes = state.definitions.codes()
        for place in range(0, len(codes), PORTION):
            await self._send(QuotaBatch(self._limits(codes[place : place + PORTION]), complete=False))
        await self._send(QuotaBatch({}, complete=True))
        while True:
            answers = len(self._answers)
            await self._send_settings()
            await self._send_brokers()
            await self._send_quotas()
            await self._send_names()
            await self._send_moves()
            for _ in range(answers):
                await self._send_answer(*self._answers.popleft())
            await self._wake.wait()
            self._wake.clear()

    async def _send_settings(self) -> None:
        if self._config is not self._state.config:
            self._config = self._state.config
            await self._send(Configure(self._config))
        if self._enforcing != self._state.enforcing:
            self._enforcing = self._state.enforcing
            await self._send(Enforce(self._enforcing))
        if self._certificates:
            self._certificates = False
            await self._send(ReadCertificates())

    async def _send_brokers(self) -> None:
        brokers = self._state.brokers
        if self._brokers_version != brokers.version:
            self._brokers_version = brokers.version
            await self._send(Brokers(brokers.known()))

    async def _send_quotas(self) -> None:
        while self._quotas:
            codes = list(islice(self._quotas, PORTION))
            for code in codes:
                del self._quotas[code]
            await self._send(QuotaBatch(self._limits(codes), complete=True))

    async def _send_names(self) -> None:
        names, self._names = self._names, {}
        for portion in _portions(names):
            await self._send(TopicsNamed(portion))

    async def _send_moves(self) -> None:
        if self._state.moves is None or self._state.moves.moves is self._moves:
            return
        before, self._moves = self._moves, self._state.moves.moves
        changes: dict[Partition, ShownMove | None] = {
            key: shown for key, shown in self._moves.items() if before.get(key) != shown
        }
        changes |= {key: None for key in before if key not in self._moves}
        for portion in _portions(changes):
            await self._send(Moves(portion))

    async def _send_answer(self, number: int, outcome: Outcome) -> None:
        try:
            await self._send(Answer(number, _portable(outcome)))
        except FrameError as error:
            await self._send(Answer(number, Refusal("internal", str(error))))

    def _limits(self, codes: list[str]) -> dict[str, dict[str, float]]:
        return {code: self._state.definitions.limits(code) for code in codes}


def _portable(outcome: Outcome) -> bytes | Forward | Refusal:
    """Convert an outcome to what another process understands; a large response is copied here, and not before."""
    if isinstance(outcome, PeerError):
        return Refusal(outcome.cause, outcome.detail)
    if isinstance(outcome, WireError):
        return Refusal("malformed", str(outcome))
    if isinstance(outcome, Exception):
        return Refusal("internal", type(outcome).__name__)
    return outcome if isinstance(outcome, Forward) else bytes(outcome)


def _portions(items: Mapping[K, V]) -> Iterator[dict[K, V]]:
    remaining = iter(items.items())
    while portion := dict(islice(remaining, PORTION)):
        yield portion
