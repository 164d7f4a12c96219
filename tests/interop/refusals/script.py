"""Which Produce requests a relay refuses, and how: the script of one run.

A refusal is a protocol error in the response or the end of the connection. Before it the request is held, as Sluice
holds one, so that the client has time to pipeline others behind it.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Way(Enum):
    """How a request is refused.

    ERROR: an error code for each partition, the records dropped.
    CLOSE: responses still owed, then FIN; what arrives is read and dropped until the client closes.
    RESET: responses still owed, then RST.
    """

    ERROR = "error"
    CLOSE = "close"
    RESET = "reset"


ERROR_NAMES: Final = {
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    56: "KAFKA_STORAGE_ERROR",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
PRODUCE: Final = 0
FETCH: Final = 1


@dataclass(frozen=True, slots=True)
class Script:
    """What is refused.

    Args:
        every: each n-th request of `api_key` is refused; 0: none.
        behind_seconds: with Way.ERROR, Produce requests on the same connection that arrive so long after a refusal
            are refused as well; 0: only the one.
        pace_seconds: each request that passes is held so long, so that a client that awaits no response is not done
            before the first refusal.
        always_after: all requests after so many are refused; 0: never.
        always_seconds: so long, or until the client gives a record up.
        rounds_max: refusals, those behind them not counted, after which everything passes; 0: no end.
    """

    way: Way
    error_code: int = 0
    every: int = 7
    api_key: int = PRODUCE
    behind_seconds: float = 0.0
    throttle_time_ms: int = 250
    hold_seconds: float = 0.3
    pace_seconds: float = 0.0
    always_after: int = 0
    always_seconds: float = 30.0
    rounds_max: int = 0

    @property
    def name(self) -> str:
        """What the tables call it."""
        if not self.every:
            return "nothing refused"
        held = f", held {self.hold_seconds:.0f} s" if self.hold_seconds >= 1 else ""
        if self.way is not Way.ERROR:
            return f"{self.way.value}{held}"
        behind = " + behind" if self.behind_seconds else ""
        return f"{self.error_code} {ERROR_NAMES[self.error_code]}{behind}{held}"


@dataclass(slots=True)
class Counts:
    """What a relay did.

    Attributes:
        requests: Produce requests (those of the script's API) that were looked at.
        rounds: refusals that the script asked for.
        refused: those of them that were carried out: the hold is over.
        behind: requests refused, or dropped on a closed connection, because they were behind one.
        connections: how many were accepted.
        apis: the API keys of each connection, in the order of connections.
    """

    requests: int = 0
    rounds: int = 0
    refused: int = 0
    behind: int = 0
    connections: int = 0
    apis: list[set[int]] = field(default_factory=list)


def refuses(script: Script, counts: Counts) -> bool:
    """Count one request, and return whether it is to be refused.

    >>> counts = Counts()
    >>> [refuses(Script(Way.CLOSE, every=3), counts) for _ in range(6)]
    [False, False, True, False, False, True]
    """
    counts.requests += 1
    if script.rounds_max and counts.rounds >= script.rounds_max:
        return False
    if script.always_after:
        chosen = counts.requests > script.always_after
    else:
        chosen = script.every > 0 and counts.requests % script.every == 0
    counts.rounds += chosen
    return chosen
