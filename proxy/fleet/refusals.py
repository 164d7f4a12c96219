"""Refused connections at the holder's port: all are counted, few are logged.

A refused member connects again every two seconds, and a hostile process at any rate.
"""

import logging
from collections.abc import Callable
from typing import Final

from proxy.logs import event
from proxy.metrics.fleet import FleetFigures

AGAIN_MS: Final = 600_000
KNOWN_MAX: Final = 256
_ORDINARY: Final = "not_holder"  # members look for the holder

logger = logging.getLogger(__name__)


class Refusals:
    """Logs one line for each cause and host in ten minutes, at most KNOWN_MAX of them.

    Args:
        figures: the counters of all refusals.
        now_ms: the clock.
    """

    def __init__(self, figures: FleetFigures, now_ms: Callable[[], int]) -> None:
        self._figures = figures
        self._now_ms = now_ms
        self._said_ms: dict[tuple[str, str], int] = {}  # the oldest first

    def note(self, cause: str, peer: tuple[str, int] | None, problem: str, member: str = "") -> None:
        """Note one refusal.

        Args:
            cause: one word, for the counter.
            peer: host and port; None if they are not known any more.
            problem: a sentence for the operator.
            member: the member's name; "" if it is not known.
        """
        self._figures.received[cause] += 1
        now_ms, said = self._now_ms(), self._said_ms
        while said and now_ms - next(iter(said.values())) >= AGAIN_MS:
            del said[next(iter(said))]
        host = "unknown" if peer is None else peer[0]
        if (cause, host) in said or len(said) >= KNOWN_MAX:
            return
        said[cause, host] = now_ms
        event(
            logger,
            logging.INFO if cause == _ORDINARY else logging.WARNING,
            "fleet member refused",
            peer="unknown" if peer is None else f"{peer[0]}:{peer[1]}",
            member=member,
            cause=cause,
            problem=problem,
        )
