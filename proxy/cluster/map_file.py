"""The broker map on disk: `brokers.json` in `[state] directory`, replaced whole and atomically.

It only saves a restarted proxy the wait for its first Metadata answer, so a damaged or unwritable file costs
one log line and nothing else.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proxy.config import Address
from proxy.logs import event

__all__ = ["MapFile"]

_NAME: Final = "brokers.json"
_BYTES_MAX: Final = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


class MapFile:
    """Reads and writes the map. Both block: call them off the loop."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME

    def read(self) -> dict[int, Address]:
        """Give the map last written; empty where there is none that can be read."""
        try:
            with self._path.open("rb") as file:
                stored = json.loads(file.read(_BYTES_MAX))
            return {int(broker): Address(str(host), int(port)) for broker, (host, port) in stored.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            event(logger, logging.WARNING, "broker map not read", path=str(self._path), detail=str(error))
            return {}

    def write(self, addresses: Mapping[int, Address]) -> None:
        """Replace the file."""
        text = json.dumps({str(broker): list(address) for broker, address in sorted(addresses.items())})
        temporary = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            event(logger, logging.WARNING, "broker map not written", path=str(self._path), detail=str(error))
