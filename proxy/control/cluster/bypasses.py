"""Checks that the brokers behind a sidecar advertise the sidecar; otherwise clients bypass it.

Each broker behind `upstreams` is asked, through its listener, for its own advertised address. It must have the port of
this process's listener for the broker, and the host of `advertised_host` if that is set. A broker that does not respond
or does not know its own address yet is asked again; its result is unknown until then. Correct brokers are asked again
from time to time, since a broker may restart with another configuration.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafka_client import ASKING_FAILS, metadata
from kafka_client.metadata import SECURITY_DISABLED, describe_cluster_acls
from proxy.config import Address, Config, ListenerOptions
from proxy.control.cluster.client import BrokerClient
from proxy.metrics.families import Family
from proxy.system.errors import reason
from proxy.system.logs import event

if TYPE_CHECKING:
    from proxy.topics.topic import Access


logger = logging.getLogger(__name__)


_UNKNOWN_SECONDS: Final = 2.0  # until a broker without a response, or with a wrong address, is asked again
_KNOWN_SECONDS: Final = 60.0
_RESPONSE_SECONDS_MAX: Final = 5.0
_WILDCARDS: Final = ("0.0.0.0", "::")


class Advertised:
    """Checks that the brokers behind a sidecar's listeners advertise the sidecar's address and not their own.

    Args:
        listeners: all listeners; those without `upstreams` are ignored.
        client: connects to the brokers.

    Attributes:
        problem: which brokers are known to advertise a wrong address; "" if there are none.
        unknown: by broker id, why its advertised address is not known yet.
    """

    def __init__(self, listeners: Iterable[ListenerOptions], client: BrokerClient) -> None:
        self._expected: dict[int, list[ListenerOptions]] = {}
        for listener in listeners:
            for broker in listener.upstreams:
                self._expected.setdefault(broker, []).append(listener)
        self._client = client
        self._brokers = client.brokers
        self.problem = ""
        self.unknown: dict[int, str] = {}

    async def run(self) -> None:
        """Check the brokers at intervals, until cancelled by the application."""
        while self._expected:
            await self.ask()
            await asyncio.sleep(_UNKNOWN_SECONDS if self.unknown or self.problem else _KNOWN_SECONDS)

    async def ask(self) -> None:
        """Ask every broker once for its advertised address; log when a problem begins or ends."""
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
        """Ask a broker; returns what is wrong with its advertised address, "" if nothing is or that is unknown."""
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


# Whether the brokers that keep Sluice's own topics and group have an authorizer.
#
# Without one every client that reaches these brokers may write to the topics, join the group and end both, past Sluice.
# Signatures (`proxy.fleet.election`) keep such a client from having its way, not from disturbing.


_ASK_SECONDS: Final = 600.0
_ASK_AGAIN_SECONDS: Final = 10.0


def own_things(config: Config) -> list[str]:
    """Return the names of Sluice's own topics and group in a cluster, such as "topic quotas"; empty if it has none."""
    quotas, fleet, found = config.quotas, config.fleet, list[str]()
    if quotas.store == "topic":
        found += [f"topic {name}" for name in (quotas.topic, quotas.audit_topic) if name]
    if config.reassignment.in_topic:
        found.append(f"topic {config.reassignment.journal_topic}")
    if fleet.has_group:
        found.append(f"group {fleet.group}")
    return found


def warning_of(things: list[str]) -> str:
    """Return the warning that every client can write to these topics and groups, as the brokers have no authorizer."""
    return (
        f"the brokers have no authorizer: every client that reaches them can take over or destroy {', '.join(things)}; "
        "set authorizer.class.name at the brokers, and let only Sluice's own user at these (docs/security.md)"
    )


async def is_unguarded(access: "Access") -> bool:
    """Ask a broker for its ACLs; returns True if the brokers have no authorizer, so every client may do everything.

    Raises:
        OSError: no broker responds.
    """
    return await access.ask(describe_cluster_acls()) == SECURITY_DISABLED


class Unguarded:
    """Checks at intervals whether the brokers have an authorizer; without one it logs a warning and sets the metric.

    Args:
        things: the topics and the group that Sluice has at these brokers (`own_things`); not empty.
    """

    def __init__(self, access: "Access", things: list[str]) -> None:
        self._access = access
        self._things = things
        self.unguarded = False

    async def run(self) -> None:
        """Check for an authorizer at intervals, until cancelled by the application."""
        while True:
            try:
                found = await is_unguarded(self._access)
            except OSError:  # the topics and the group report that themselves
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
                continue
            if found and not self.unguarded:
                event(
                    logger,
                    logging.WARNING,
                    "the brokers have no authorizer: every client can take over what Sluice keeps there",
                    kept=", ".join(self._things),
                )
            self.unguarded = found
            await asyncio.sleep(_ASK_SECONDS)

    def families(self) -> Iterator[Family]:
        """Yield the metric that is 1 while the brokers have no authorizer."""
        text = "1 while the brokers that keep Sluice's own topics and group have no authorizer"
        yield Family("sluice_brokers_unguarded", "gauge", text, (), [((), float(self.unguarded))])
