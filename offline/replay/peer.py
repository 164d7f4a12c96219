"""A connection to one of the target's brokers for the preparation of a replay: one request at a time."""

import asyncio
from typing import Final, TypeVar

from kafka_client import ClosedError, Connection, Request
from offline.replay.errors import TargetError
from offline.replay.responses import Broker
from protocol.api import API_NAMES
from protocol.errors import WireError

__all__ = ["Peer"]

T = TypeVar("T")

_CLIENT_ID: Final = b"sluice-replay"
_SECONDS_MAX: Final = 10.0


class Peer:
    """A connection for one request at a time."""

    def __init__(self, address: Broker) -> None:
        self.address = address
        self._connection: Connection | None = None

    async def ask(self, request: Request[T]) -> T:
        """Send a request and return its parsed response.

        Raises:
            TargetError: there is no response.
            WireError: the response cannot be read.
        """
        api_key, version = request.api_key, request.version
        where = f"{self.address.host}:{self.address.port}"
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                if self._connection is None:
                    self._connection = await Connection.open(*self.address, client_id=_CLIENT_ID)
                frame = await self._connection.send(request)
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
        return request.read(frame)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _problem(error: OSError) -> str:
    return f"cannot be reached: {error.strerror}" if error.errno else str(error)
