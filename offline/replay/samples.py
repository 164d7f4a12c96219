"""The state of each request of a plan, by its index.

NOT_REACHED --- due, no room ---------------------------> DROPPED
            --- due, no partition at the target --------> LEFT_OUT
            --- due, connection could not be opened ----> NEVER_SENT
            --- given to a connection, no response due -> SILENT
            --- given to a connection ------------------> IN_FLIGHT
IN_FLIGHT  --- its response has arrived -----------------> its latency in us, 0 or more
            --- the connection ended -------------------> LOST
"""

from array import array
from typing import Final

__all__ = [
    "DROPPED",
    "IN_FLIGHT",
    "LEFT_OUT",
    "LOST",
    "NEVER_SENT",
    "NOT_REACHED",
    "NO_RESPONSE",
    "SENT",
    "SILENT",
    "Samples",
]

# In place of a latency.
NOT_REACHED: Final = -1  # the replay ended before
IN_FLIGHT: Final = -2  # the replay ended while its connection was open
DROPPED: Final = -3
LOST: Final = -4
SILENT: Final = -5
NEVER_SENT: Final = -6
LEFT_OUT: Final = -7

# With those that have a latency: what a connection was given.
SENT: Final = frozenset((IN_FLIGHT, LOST, SILENT))
# Percentiles count these as infinitely late.
NO_RESPONSE: Final = frozenset((IN_FLIGHT, LOST, DROPPED, NEVER_SENT))


class Samples:
    """The measurements of all requests, times in us.

    Attributes:
        sent_as: the API of the sent request, which may differ from the recorded one.
        expects_response: 0 for a request without a response.
    """

    def __init__(self, count: int) -> None:
        self.late_us = array("q", bytes(8 * count))
        self.latency_us = array("q", [NOT_REACHED]) * count
        self.throttle_ms = array("i", bytes(4 * count))
        self.error = array("h", bytes(2 * count))
        self.sent_as = array("h", [-1]) * count
        self.expects_response = bytearray(b"\1") * count
        self.request_bytes = array("i", bytes(4 * count))
        self.response_bytes = array("i", bytes(4 * count))
        self.connect_errors = 0

    def no_response(self, place: int) -> bool:
        """Whether a request should have had a response and has none."""
        return bool(self.expects_response[place]) and self.latency_us[place] in NO_RESPONSE
