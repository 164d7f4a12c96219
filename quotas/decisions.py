"""The engine's decision on a request: admit, hold, throttle or refuse (KIP-13, KIP-219).

A decision is data; `proxy.channel` carries it out (reads on, responds, mutes). `ADMITTED` is one shared
constant, so that an unthrottled request makes no object: compare with `is`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one request.

    Attributes:
        hold_until_ms: do not read the payload before this time, then ask again (nothing is charged yet); 0 for no hold.
        throttle_ms: respond with this throttle_time_ms and mute the channel for it; 0 for no throttle.
        refused: the request has been held for as long as it may be and does not pass: nothing is charged.
        reason: a short constant for logs and admin pages; "" for `ADMITTED`.
    """

    hold_until_ms: int = 0
    throttle_ms: int = 0
    refused: bool = False
    reason: str = ""


ADMITTED: Final = Decision()
