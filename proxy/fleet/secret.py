"""The secret of a fleet, as its file has it now (`fleet.secret_file`)."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from proxy.system import files
from proxy.system.errors import system_reason
from proxy.system.logs import event

KEY: Final = "fleet.secret_file"

logger = logging.getLogger(__name__)


def secret_problem(path: Path | None, error: OSError) -> str:
    """Return a sentence that says why the secret in this file cannot be used."""
    return str(error) if error.errno is None else f"{KEY}: {path}: {system_reason(error)}"


class FleetSecret:
    """The secret of the fleet, which is read from its file at each `read`, so that a changed file applies.

    While the file cannot be used, the secret that was read last stays in force. Two event loops use one object: the
    application's, and that of the Kafka group.

    Args:
        path: None for a fleet without a secret.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._secret = b""
        self._problem = ""

    async def read(self) -> bytes:
        """Return the secret in force; empty without one.

        Raises:
            OSError: the file cannot be used, and no secret was read from it before.
        """
        if self._path is None:
            return b""
        try:
            secret = await asyncio.to_thread(files.read_secret, self._path, KEY)
        except OSError as error:
            if not self._secret:
                raise
            problem = secret_problem(self._path, error)
            if problem != self._problem:
                self._problem = problem
                event(
                    logger,
                    logging.ERROR,
                    "the secret of the fleet cannot be used; the old one stays in force",
                    detail=problem,
                )
        else:
            self._secret, self._problem = secret, ""
        return self._secret


NO_SECRET: Final = FleetSecret(None)
