"""The memory of the state of one client, topic, user and address, in bytes.

Measured with all objects that belong to it (Python 3.11, 64 bits) and rounded up; tests compare. It counts against the
budget for kept bytes, together with the lengths of unbounded names.
"""

from typing import Final

CLIENT_BYTES: Final = 1024  # without user and client id
LIMITER_BYTES: Final = 1792  # for one direction
PREDICTION_BYTES: Final = 1024  # of a limiter that only observes
REQUEST_LIMITER_BYTES: Final = 2048
MUTATION_LIMITER_BYTES: Final = 1024
TOPIC_BYTES: Final = 2560  # with its limiter and its name
USER_CONNECTIONS_BYTES: Final = 640
ADDRESS_BYTES: Final = 1536  # with its windows


def limiter_bytes(enforces: bool) -> int:
    """Return the memory of a limiter for one direction."""
    return LIMITER_BYTES if enforces else LIMITER_BYTES + PREDICTION_BYTES
