"""Connects the parts of a process to its events."""

from typing import TYPE_CHECKING, Final

from proxy.config import Config
from proxy.events import Tell
from proxy.events.broker_states import BrokerStates
from proxy.process.process_events import Dialled, Judged, ProcessEvents
from proxy.process.relay import Relay
from proxy.process.waits import Waits

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet
    from proxy.process.workers import Workers


_OWN: Final = 0  # the source of the process itself; workers' are the numbers of their lives


def wire_events(
    tell: Tell,
    config: Config,
    relay: Relay,
    brokers: BrokerStates,
    workers: "Workers | None",
    fleet: "Fleet | None",
) -> None:
    """Have all parts of this process tell their events."""
    waits = Waits(tell, relay.engine.definitions, config.quotas.partition_mutations_rate)
    process_events = ProcessEvents(waits, brokers)
    relay.watching.judged = lambda judgement: process_events.take(_OWN, Judged(judgement))
    relay.shared.dials.report = lambda *found: process_events.take(_OWN, Dialled(*found))
    if workers is not None:
        workers.tell, workers.process_events = tell, process_events
    if fleet is not None:
        fleet.tell = tell
