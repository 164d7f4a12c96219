"""Connects the parts of a process to its events."""

from typing import TYPE_CHECKING, Final

from proxy.config import Config
from proxy.events import Tell
from proxy.process.relay import Relay
from proxy.process.waits import Waits

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet
    from proxy.process.workers import Workers

__all__ = ["report_to"]

OWN: Final = 0  # the source of the process itself; workers' are the numbers of their lives


def report_to(
    tell: Tell, config: Config, relay: Relay, workers: "Workers | None", fleet: "Fleet | None"
) -> None:
    """Have all parts of this process tell their events."""
    waits = Waits(tell, relay.engine.definitions, config.quotas.partition_mutations_rate)
    relay.watching.judged = lambda judgement: waits.heard(OWN, judgement)
    if workers is not None:
        workers.tell, workers.waits = tell, waits
    if fleet is not None:
        fleet.tell = tell
