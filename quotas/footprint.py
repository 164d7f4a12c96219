"""What is remembered of clients, topics, users and addresses takes so many bytes of memory each.

Measured with all objects that belong to them (Python 3.11, 64 bits) and rounded up; tests compare. They count against
the budget for kept bytes (issue 14), beside the lengths of names where those are not bounded themselves.
"""

from typing import Final

CLIENT_BYTES: Final = 1024  # without its names
LIMITER_BYTES: Final = 1792  # of one direction
REQUEST_LIMITER_BYTES: Final = 2048
MUTATION_LIMITER_BYTES: Final = 1024
TOPIC_BYTES: Final = 2560  # with its limiter and its name
USER_CONNECTIONS_BYTES: Final = 640
ADDRESS_BYTES: Final = 1536  # with its windows
