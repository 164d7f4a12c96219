"""The broker map on disk: `brokers.json` in `[state] directory`, replaced whole and atomically.

It only saves a restarted proxy the wait for its first Metadata response, so a damaged or unwritable file costs one log
line and nothing else.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.config import Address
from proxy.system.errors import reason
from proxy.system.files import read
from proxy.system.logs import event
from proxy.system.stats import Stats

_NAME: Final = "brokers.json"
_BYTES_MAX: Final = 4 * 1024 * 1024
_MODE: Final = 0o644
_ID_CHARACTERS_MAX: Final = 11

logger = logging.getLogger(__name__)


class MapFile:
    """Reads and writes the map. Both calls block: make them outside of the loop.

    Args:
        stats: counts the results of writing.
    """

    def __init__(self, directory: Path, stats: Stats) -> None:
        self._path = directory / _NAME
        self._stats = stats
        self._problem = ""  # the reason of the last failed write, as logged

    def read(self) -> dict[int, Address]:
        """Return the last written map; empty if no readable one exists.

        The addresses are not validated here.
        """
        try:
            stored = json.loads(read(self._path, _BYTES_MAX))
            return {_id(broker): _address(place) for broker, place in stored.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            event(logger, logging.WARNING, "broker map not read", path=str(self._path), detail=reason(error))
            return {}

    def write(self, addresses: Mapping[int, Address]) -> bool:
        """Replace the file; False if that fails, which is logged once for each reason."""
        text = json.dumps({str(broker): list(address) for broker, address in sorted(addresses.items())})
        temporary = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                temporary.unlink()  # whatever it is: opening a FIFO would wait for a reader
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            self._stats.broker_map_writes["failed"] += 1
            if reason(error) != self._problem:
                self._problem = reason(error)
                event(
                    logger,
                    logging.WARNING,
                    "broker map not written",
                    path=str(self._path),
                    detail=self._problem,
                )
            return False
        self._problem = ""
        self._stats.broker_map_writes["ok"] += 1
        return True


def _id(broker: str) -> int:
    if len(broker) > _ID_CHARACTERS_MAX:
        raise ValueError("a broker's id is too long")
    return int(broker)


def _address(place: object) -> Address:
    if not isinstance(place, list) or len(place) != 2:
        raise TypeError("a broker's address is not a host and a port")
    host, port = place
    if not isinstance(host, str) or not isinstance(port, int):
        raise TypeError("a broker's address is not a host and a port")
    return Address(host, port)
