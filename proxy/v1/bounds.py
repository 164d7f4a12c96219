"""Bounds on what is read of members. Pure."""

from typing import Final

MEMBERS_MAX: Final = 64  # more in /v1/fleet are counted, and not asked
CLIENTS_MAX: Final = 10_000  # of one member's list, and in the history
LIST_BYTES_MAX: Final = 32 * 1024**2  # of /v1/clients: 10,000 rows are about 8 MB
RESPONSE_BYTES_MAX: Final = 2 * 1024**2  # of every other document
