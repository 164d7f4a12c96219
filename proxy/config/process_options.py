"""`[process]`: how many processes relay. One per core relays what one per core can; the rest is in `proxy.process`."""

from dataclasses import dataclass, field
from typing import Final

from proxy.config import readers
from proxy.config.keys import key

AUTO: Final = 0  # `workers = "auto"`
WORKERS_MAX: Final = 64
_read_count: Final = readers.count(1, WORKERS_MAX)


def _workers(path: str, value: object) -> int:
    return AUTO if value == "auto" else _read_count(path, value)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """`[process]`."""

    workers: int = field(default=1, metadata=key(_workers, 'number or "auto"', unit="processes"))
