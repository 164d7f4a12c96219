"""Whether the brokers behind a sidecar advertise the sidecar: one that advertises itself is reached round it.

Each broker behind `upstreams` is asked, at the listener that stands there, what it advertises for itself. That must be
the port where this process listens for it, and the host where `advertised_host` says one. A broker that does not
answer, or does not know itself yet, is asked again: nothing is known of it until then. Those that are right are asked
again now and then, since a broker may come back with another configuration.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from kafka_client import ASKING_FAILS, metadata
from proxy.cluster.client import BrokerClient
from proxy.config import Address, ListenerOptions
from proxy.errors import reason
from proxy.logs import event

__all__ = ["Advertised"]

_UNKNOWN_SECONDS: Final = 2.0  # to the next question while a broker has not answered, or is wrong
_KNOWN_SECONDS: Final = 60.0
_ANSWER_SECONDS_MAX: Final = 5.0
_WILDCARDS: Final = ("0.0.0.0", "::")

logger = logging.getLogger(__name__)


class Advertised:
    """Looks at the brokers behind some sidecar listeners.

    Args:
        listeners: those that stand in front of brokers; others are left out.
        client: asks these brokers.

    Attributes:
        problem: which broker advertises something else; "" where none is known to.
        unknown: brokers that have not answered yet, and why.
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
        """Ask for ever; the application cancels it."""
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
        """Say what is wrong with what one broker advertises; "" where it is right, or not known."""
        _, target = self._brokers.upstream(broker)
        try:
            if target is None:
                raise OSError("its name cannot be resolved")
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                found = await self._client.ask(target, metadata.brokers())
        except ASKING_FAILS as error:
            self.unknown[broker] = reason(error, _ANSWER_SECONDS_MAX)
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
    """Tell whether what a broker advertises is this listener, as far as the configuration says what that is."""
    if advertised == listener.upstreams[broker]:
        return False
    expected = listener.advertised_broker(broker)
    assert expected is not None, "an upstream above broker_id_max is refused"
    # Without an advertised_host of its own a listener does not know under which names it is reached.
    knows_host = expected.host not in (*_WILDCARDS, listener.bind)
    return advertised.port == expected.port and (
        not knows_host or advertised.host.lower() == expected.host.lower()
    )


def _expected(listener: ListenerOptions, broker: int) -> str:
    expected = listener.advertised_broker(broker)
    assert expected is not None, "an upstream above broker_id_max is refused"
    return f"port {expected.port}" if expected.host in _WILDCARDS else str(expected)
