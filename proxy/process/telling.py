"""Connects the parts of a process to its events."""

from typing import TYPE_CHECKING, Final

from proxy.config import Config
from proxy.events import Tell
from proxy.events.broker_states import BrokerStates
from proxy.process.hearing import Dialled, Hearing, Judged
from proxy.process.relay import Relay
from proxy.process.waits import Waits

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet
    from proxy.process.workers import Workers

__all__ = ["report_to"]

_OWN: Final = 0  # the source of the process itself; workers' are the numbers of their lives


def report_to(
    tell: Tell,
    config: Config,
    relay: Relay,
    brokers: BrokerStates,
    workers: "Workers | None",
    fleet: "Fleet | None",
) -> None:
    """Have all parts of this process tell their events."""
    waits = Waits(tell, relay.engine.definitions, config.quotas.partition_mutations_rate)
    hearing = Hearing(waits, brokers)
    relay.watching.judged = lambda judgement: hearing.heard(_OWN, Judged(judgement))
    relay.shared.dials.report = lambda *found: hearing.heard(_OWN, Dialled(*found))
    if workers is not None:
        workers.tell, workers.hearing = tell, hearing
    if fleet is not None:
        fleet.tell = tell
