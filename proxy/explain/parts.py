"""The parts that a connection's time is divided into; they add up to the whole.

If two are true at once, the first in this order counts:

    held     a request waits before its payload is read, for its slot (`schedule`)
    muted    the channel is muted (KIP-219)
    client   the client is slow: it does not read its responses, or has sent a request only in part
    sluice   a request or response is in Sluice: it is parsed, handled by another part, or waits for the event loop
    broker   a broker has the request
    poll     a broker has the request, and it may wait: a Fetch for its min_bytes, a member for its group
    idle     there is no request
"""

from typing import Final

HELD: Final = 0
MUTED: Final = 1
SLUICE: Final = 2
BROKER: Final = 3
POLL: Final = 4
CLIENT: Final = 5
IDLE: Final = 6
NAMES: Final = ("held", "muted", "sluice", "broker", "poll", "client", "idle")
