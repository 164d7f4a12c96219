"""What the processes of Sluice have seen of clients and brokers, as events: this one's part, and what workers send."""

from typing import NamedTuple

from proxy.clock import now_ms
from proxy.events.broker_states import BrokerStates
from proxy.explain.waiting import Judgement
from proxy.process.waits import Waits


class Judged(NamedTuple):
    """Clients have begun or ended to wait for much of their time."""

    judgement: Judgement


class Dialled(NamedTuple):
    """Connections to a broker fail; without a problem, they do not any more."""

    broker: int
    problem: str


class ProcessEvents:
    """Takes what is seen, with the process that has seen it."""

    def __init__(self, waits: Waits, brokers: BrokerStates) -> None:
        self._waits = waits
        self._brokers = brokers

    def take(self, source: int, seen: Judged | Dialled) -> None:
        """Take what one process has seen."""
        if isinstance(seen, Judged):
            self._waits.take(source, seen.judgement)
        else:
            self._brokers.reported(source, seen.broker, seen.problem, now_ms())

    def ended(self, source: int) -> None:
        """A worker has ended, and its connections with it."""
        self._waits.ended(source)
        self._brokers.ended(source, now_ms())
