"""A connection to one of the target's brokers for what is asked before a replay: one thing at a time."""

import asyncio
from contextlib import suppress
from typing import Final

from offline.replay import messages
from offline.replay.answers import Broker
from offline.replay.errors import TargetError
from protocol.api import API_NAMES

__all__ = ["Peer"]

_CLIENT_ID: Final = "sluice-replay"
_SECONDS_MAX: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class Peer:
    """A connection that asks one thing at a time."""

    def __init__(self, address: Broker) -> None:
        self.address = address
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, api_key: int, body: bytes, version: int = -1) -> bytes:
        """Send a request and give its answer.

        Raises:
            TargetError: it did not come.
        """
        version = messages.VERSIONS[api_key] if version < 0 else version
        where = f"{self.address.host}:{self.address.port}"
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                if self._reader is None or self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection(*self.address)
                self._writer.write(messages.request(api_key, version, 1, _CLIENT_ID, body))
                prefix = await self._reader.readexactly(4)
                length = int.from_bytes(prefix, "big", signed=True)
                if not 4 <= length <= _ANSWER_BYTES_MAX:
                    raise TargetError(f"{where}: does not speak Kafka, or expects TLS")
                return prefix + await self._reader.readexactly(length)
        except TimeoutError as error:
            raise TargetError(
                f"{where}: no response to {API_NAMES[api_key]} within {_SECONDS_MAX:g} s"
            ) from error
        except asyncio.IncompleteReadError as error:
            raise TargetError(
                f"{where}: closed the connection at {API_NAMES[api_key]} version {version}: it refuses it, or "
                "expects TLS or SASL, which a replay does not speak"
            ) from error
        except OSError as error:
            raise TargetError(f"{where}: cannot be reached: {error.strerror or error}") from error
        except (UnicodeError, OverflowError) as error:
            raise TargetError(f"{where}: is not an address: {error}") from error

    async def close(self) -> None:
        """End it."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
                await self._writer.wait_closed()
