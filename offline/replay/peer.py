"""A connection to one of the target's brokers for what is asked before a replay: one thing at a time."""

import asyncio
from typing import Final

from kafka_client import ClosedError, Connection
from offline.replay import messages
from offline.replay.answers import Broker
from offline.replay.errors import TargetError
from protocol.api import API_NAMES
from protocol.errors import WireError

__all__ = ["Peer"]

_CLIENT_ID: Final = b"sluice-replay"
_SECONDS_MAX: Final = 10.0
_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024


class Peer:
    """A connection that asks one thing at a time."""

    def __init__(self, address: Broker) -> None:
        self.address = address
        self._connection: Connection | None = None

    async def ask(self, api_key: int, body: bytes, version: int = -1) -> bytes:
        """Send a request and return its response.

        Raises:
            TargetError: it did not come.
        """
        version = messages.VERSIONS[api_key] if version < 0 else version
        where = f"{self.address.host}:{self.address.port}"
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                if self._connection is None:
                    self._connection = await Connection.open(*self.address, client_id=_CLIENT_ID)
                return await self._connection.request(
                    api_key, version, body + b"\0", bytes_max=_RESPONSE_BYTES_MAX
                )
        except TimeoutError as error:
            raise TargetError(
                f"{where}: no response to {API_NAMES[api_key]} within {_SECONDS_MAX:g} s"
            ) from error
        except ClosedError as error:
            raise TargetError(
                f"{where}: closed the connection at {API_NAMES[api_key]} version {version}: it refuses it, or "
                "expects TLS or SASL, which a replay does not speak"
            ) from error
        except WireError as error:
            raise TargetError(f"{where}: does not speak Kafka, or expects TLS") from error
        except OSError as error:
            raise TargetError(f"{where}: {_problem(error)}") from error

    def close(self) -> None:
        """End it."""
        if self._connection is not None:
            self._connection.close()


def _problem(error: OSError) -> str:
    return f"cannot be reached: {error.strerror}" if error.errno else str(error)
