"""The part of `sluice check` on the cluster: its requests to the brokers, and the lines about them."""

import asyncio
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from commandline.amounts import count
from proxy.config import Address, Config, ListenerOptions

if TYPE_CHECKING:
    from proxy.certificates import Certificates


def tls(config: Config) -> "Certificates":
    """Read all certificates.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    # Imported late: most configurations have none.
    from proxy.certificates import Certificates
    from proxy.system.stats import Stats

    return Certificates(config, Stats())


def context_of(config: Config) -> Callable[[], ssl.SSLContext] | None:
    """Return the context of connections to brokers; None without TLS."""
    side = tls(config).brokers
    return None if side is None else lambda: side.context


def ask_cluster(config: Config) -> tuple[Mapping[int, Address], str]:
    """Ask the cluster once for its brokers; return them and "", or none and the reason why there is no response."""
    # Imported late: judging a file needs no sockets.
    from proxy.cluster import BrokerClient, BrokerMap, Poller, login_of
    from proxy.system.stats import Stats

    brokers = BrokerMap(config.cluster.bootstrap, Stats())
    poller = Poller(BrokerClient(brokers, login_of(config.cluster), context_of(config)), None, follow=True)
    asyncio.run(poller.poll())
    return brokers.addresses(), poller.problem


def ask_advertised(config: Config) -> tuple[Mapping[int, str], str]:
    """Ask the brokers behind sidecars for their advertised addresses.

    Returns:
        The brokers without a response, each with the reason; and the problem of an advertised address, or "".
    """
    # Imported late: as above.
    from proxy.cluster import Advertised, BrokerClient, BrokerMap, Poller, login_of
    from proxy.system.stats import Stats

    context = context_of(config)
    login = login_of(config.cluster)
    unknown: dict[int, str] = {}
    problems: list[str] = []

    async def ask_all() -> None:
        for replicates in (False, True):
            listeners = [listener for listener in config.listeners if listener.replicates is replicates]
            brokers = BrokerMap((), Stats())
            for listener in listeners:
                for broker, address in listener.upstreams.items():
                    brokers.learn(broker, *address)
            client = BrokerClient(brokers, login, context)
            await Poller(client, None, follow=False).resolve()
            looked = Advertised(listeners, client)
            await looked.ask()
            unknown.update(looked.unknown)
            problems.append(looked.problem)

    asyncio.run(ask_all())
    return unknown, "; ".join(filter(None, problems))


def cluster(found: Mapping[int, Address]) -> Iterator[str]:
    """Yield lines on the cluster's brokers."""
    yield f"cluster: {count(len(found), 'broker')}"
    for broker, address in sorted(found.items()):
        yield f"  broker {broker} at {address}"


def port_problem(listeners: Sequence[ListenerOptions], brokers: Iterable[int]) -> str:
    """Return which listener has no port for which of the brokers, and what to write; "" if none."""
    found = [(listener, listener.without_port(brokers)) for listener in listeners]
    return "; ".join(listener.port_problem(missing) for listener, missing in found if missing)
