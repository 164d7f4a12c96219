"""Checks that the brokers behind a sidecar advertise the sidecar; otherwise clients bypass it.

Each broker behind `upstreams` is asked, through its listener, for its own advertised address. It must have the port of
this process's listener for the broker, and the host of `advertised_host` if that is set. A broker that does not respond
or does not know its own address yet is asked again; its result is unknown until then. Correct brokers are asked again
from time to time, since a broker may restart with another configuration.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from kafka_client import ASKING_FAILS, metadata
from proxy.cluster.client import BrokerClient
from proxy.config import Address, ListenerOptions
from proxy.system.errors import reason
from proxy.system.logs import event

_UNKNOWN_SECONDS: Final = 2.0  # until a broker without a response, or with a wrong address, is asked again
_KNOWN_SECONDS: Final = 60.0
_RESPONSE_SECONDS_MAX: Final = 5.0
_WILDCARDS: Final = ("0.0.0.0", "::")

logger = logging.getLogger(__name__)


class Advertised:
    """Checks the brokers behind some sidecar listeners.

    Args:
        listeners: those without a broker behind them are ignored.
        client: connects to the brokers.

    Attributes:
        problem: the broker with a wrong address; "" if none is known.
        unknown: the brokers without a result, and why.
    """

    def __init__(
        self,
        listeners: Iterable[ListenerOptions],
        client: BrokerClient,
    ) -> None:
        self._expected: dict[int, list[ListenerOptions]] = {}
        for listener in listeners:
            for broker in listener.upstreams:
                self._expected.setdefault(broker, []).append(listener)
        self._client = client
        self._brokers = client.brokers
        self.problem = ""
        self.unknown: dict[int, str] = {}

    async def run(self) -> None:
        """Run until cancelled by the application."""
        while self._expected:
            await self.ask()
            await asyncio.sleep(_UNKNOWN_SECONDS if self.unknown or self.problem else _KNOWN_SECONDS)

    async def ask(self) -> None:
        """Ask every broker once."""
        said = [await self._ask(broker, listeners) for broker, listeners in self._expected.items()]
        problem = "; ".join(filter(None, said))
        if problem != self.problem:
            level = logging.ERROR if problem else logging.INFO
            event(
                logger,
                level,
                "advertised addresses of the brokers",
                problem=problem or "none: they advertise Sluice",
            )
        self.problem = problem

    async def _ask(self, broker: int, listeners: Sequence[ListenerOptions]) -> str:
        """Return the error in one broker's advertised address; "" if it is correct, or unknown."""
        _, target = self._brokers.upstream(broker)
        try:
            if target is None:
                raise OSError("its name cannot be resolved")
            async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
                found = await self._client.ask(target, metadata.brokers())
        except ASKING_FAILS as error:
            self.unknown[broker] = reason(error, _RESPONSE_SECONDS_MAX)
            return ""
        advertised = {one.broker: Address(one.host, one.port) for one in found}.get(broker)
        if advertised is None:
            self.unknown[broker] = "its response does not name it"
            return ""
        self.unknown.pop(broker, None)
        if any(_leads_to(listener, broker, advertised) for listener in listeners):
            return ""
        listener = listeners[0]
        return (
            f"listener {listener.name!r}: broker {broker} at {listener.upstreams[broker]} advertises {advertised},"
            f" and must advertise this Sluice, {_expected(listener, broker)}: clients bypass it"
        )


def _leads_to(listener: ListenerOptions, broker: int, advertised: Address) -> bool:
    """Return whether an advertised address is that of the listener, as far as the configuration defines it."""
    if advertised == listener.upstreams[broker]:
        return False
    expected = listener.advertised_broker(broker)
    assert expected is not None, "an upstream above broker_id_max is refused"
    # Without an advertised_host the listener may be reached under any name.
    knows_host = expected.host not in (*_WILDCARDS, listener.bind)
    return advertised.port == expected.port and (
        not knows_host or advertised.host.lower() == expected.host.lower()
    )


def _expected(listener: ListenerOptions, broker: int) -> str:
    expected = listener.advertised_broker(broker)
    assert expected is not None, "an upstream above broker_id_max is refused"
    return f"port {expected.port}" if expected.host in _WILDCARDS else str(expected)
