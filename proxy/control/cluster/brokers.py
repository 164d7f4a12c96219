"""The brokers' addresses. Pure bookkeeping; the poller sends requests and resolves names.

A broker's address comes from `upstreams`, then from Sluice's own Metadata connection, then from Metadata responses to
clients. The last map is kept on disk, so that a restarted proxy serves every broker's port at once. Impossible ids,
hosts and ports are refused here, whatever their source: counted by error, and logged once.

Non-obvious:

- A broker with an id beyond `broker_id_max` is never in a response to a client, since no port leads to it; it is
  counted.
- An address of a broker that is not alive is removed when a living one has it: brokers that have changed their ids or
  addresses must not be confused. That of one that is only down is kept.
- A gateway's address map may be called in the thread that reads large frames (`proxy.system.threads`). `BrokerMap`
  takes a copy of all addresses in one step wherever it goes through them.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec import Meta
from msgspec.json import Decoder, encode

from proxy.channel.settings import ANY_BROKER
from proxy.config import Address, Config, ListenerOptions
from proxy.system.errors import reason, shorten
from proxy.system.files import read, store
from proxy.system.hosts import is_host, is_ip
from proxy.system.logs import event
from proxy.system.stats import Stats

logger = logging.getLogger(__name__)


_ID_MAX: Final = 2**31 - 1
_PORT_MAX: Final = 65_535
_BROKERS_MAX: Final = 10_000  # far above any cluster; bounds the memory that a broken peer can use
_TARGETS_MAX: Final = 16  # the known brokers that are asked one after the other until one responds
_LOGGED_MAX: Final = 100


class KnownBrokers(NamedTuple):
    """The contents of a broker map, as sent to other processes.

    Args:
        addresses: the brokers' addresses by id.
        live: the ids of the brokers that are alive.
        ips: the IP addresses by host name.
        cluster_id: the cluster's id; "" if unknown.
    """

    addresses: Mapping[int, Address]
    live: tuple[int, ...]
    ips: Mapping[str, str]
    cluster_id: str = ""


class BrokerMap:
    """The addresses of a cluster's brokers by id, and which brokers are alive.

    `address_map` may be called in another thread, for a large response, while other methods run.

    Attributes:
        changed: whether an address was learned since the map was last written to disk.
        version: grows with every change of an address, of the live brokers, of an IP address, or of the cluster's id.
        cluster_id: the cluster's id, once Sluice's own Metadata connection has read it; "" if unknown.
    """

    def __init__(self, bootstrap: tuple[Address, ...], stats: Stats) -> None:
        self._bootstrap = bootstrap
        self._stats = stats
        self._addresses: dict[int, Address] = {}
        self._live: tuple[int, ...] = ()
        self._ips: dict[str, str] = {}
        self._next_broker = 0
        self._logged: set[tuple[int, str, int]] = set()  # refused addresses that were logged
        self.changed = False
        self.version = 0
        self.cluster_id = ""

    def learn(self, broker: int, host: str, port: int) -> None:
        """Store a broker's address; one with an invalid id, host or port is logged and ignored."""
        if self._addresses.get(broker) == (host, port):
            return
        problem = self._address_problem(broker, host, port)
        if problem:
            self._reject(problem, broker, host, port)
            return
        self._addresses[broker] = Address(host, port)
        self.changed = True
        self.version += 1

    def known(self) -> KnownBrokers:
        """Return a copy of the map's contents, for another process's `replace`."""
        return KnownBrokers(dict(self._addresses), self._live, dict(self._ips), self.cluster_id)

    def replace(self, known: KnownBrokers) -> None:
        """Replace the map's contents by those of another process's map."""
        self._addresses, self._live, self._ips = dict(known.addresses), known.live, dict(known.ips)
        self.cluster_id = known.cluster_id
        self.changed = False

    def set_live(self, brokers: Iterable[int]) -> None:
        """Store which brokers are alive; clients of the bootstrap port are connected to one of these.

        If the map is full, the addresses of all other brokers are removed.
        """
        live = tuple(sorted(set(islice(brokers, _BROKERS_MAX))))
        self.version += live != self._live
        self._live = live
        if len(self._addresses) >= _BROKERS_MAX:
            self._addresses = {
                broker: self._addresses[broker] for broker in self._live if broker in self._addresses
            }

    def set_cluster(self, cluster_id: str) -> None:
        """Store the cluster's id."""
        self.version += cluster_id != self.cluster_id
        self.cluster_id = cluster_id

    def forget(self) -> None:
        """Remove all brokers, since the configured addresses lead to another cluster now."""
        self._addresses, self._live = {}, ()
        self.changed = True
        self.version += 1

    def retire(self) -> None:
        """Remove the addresses of brokers that are not alive and whose address a living one has."""
        known, live = dict(self._addresses), frozenset(self._live)
        taken = {address for broker, address in known.items() if broker in live}
        gone = [broker for broker, address in known.items() if broker not in live and address in taken]
        for broker in gone:
            self._addresses.pop(broker, None)
        if gone:
            self.changed = True
            self.version += 1

    def is_configured(self, target: tuple[str, int]) -> bool:
        """Whether `target` is a configured address, not one that a broker has named."""
        return any(self._resolve(address) == target for address in self._bootstrap)

    def identity(self, target: tuple[str, int]) -> tuple[str, int] | None:
        """Return the cluster's id and the id of the broker at an address; None if either is unknown or ambiguous."""
        known, port = dict(self._addresses), target[1]
        found = [
            broker
            for broker, address in known.items()
            if address.port == port and self._resolve(address) == target
        ]
        return (self.cluster_id, found[0]) if self.cluster_id and len(found) == 1 else None

    def live(self) -> tuple[int, ...]:
        """Return the ids of the brokers that are alive, as far as known."""
        return self._live

    def resolved(self, host: str, ip: str) -> None:
        """Store the IP address to which the poller has resolved a host name."""
        self.version += self._ips.get(host) != ip
        self._ips[host] = ip

    def hosts(self) -> list[str]:
        """Return all host names in the map, without IP addresses, for the poller to resolve again.

        Stored IP addresses of host names that are no longer used are removed.
        """
        addresses = (*self._bootstrap, *self._addresses.values())
        hosts = dict.fromkeys(address.host for address in addresses if not is_ip(address.host))
        self._ips = {host: ip for host, ip in self._ips.items() if host in hosts}
        return list(hosts)

    def addresses(self) -> Mapping[int, Address]:
        """Return the addresses of all brokers by id, to be written to disk."""
        return self._addresses

    def targets(self) -> list[tuple[str, int]]:
        """Return addresses for a request of Sluice's own, in the order in which to try them.

        These are the configured addresses, then those of at most 16 known brokers, as each attempt may take long to
        fail. If more are known, each call chooses the next 16.
        """
        known = list(self._addresses.values())
        if len(known) > _TARGETS_MAX:
            self._next_broker += 1
            first = self._next_broker * _TARGETS_MAX % len(known)
            known = (known + known)[first : first + _TARGETS_MAX]
        found = [self._resolve(address) for address in (*self._bootstrap, *known)]
        return [target for target in dict.fromkeys(found) if target is not None]

    def upstream(
        self, broker: int, tried: Collection[tuple[str, int]] = ()
    ) -> tuple[int, tuple[str, int] | None]:
        """Return the id and the address of the broker to connect to; None as the address if it is not known.

        If no known broker is left, the address is a configured one, and the id is ANY_BROKER.

        Args:
            broker: the broker's id; ANY_BROKER for the next live broker in turn.
            tried: addresses that ANY_BROKER leaves out.
        """
        if broker != ANY_BROKER:
            address = self._addresses.get(broker)
            return broker, self._resolve(address) if address else None
        known = self._live or tuple(sorted(self._addresses))
        self._next_broker += 1
        for offset in range(len(known)):
            candidate = known[(self._next_broker + offset) % len(known)]
            target = self._resolve(self._addresses[candidate]) if candidate in self._addresses else None
            if target is not None and target not in tried:
                return candidate, target
        targets = [target for target in self.targets() if target not in tried]
        return ANY_BROKER, targets[self._next_broker % len(targets)] if targets else None

    def host(self, broker: int, target: tuple[str, int]) -> str:
        """Return the host name of the broker at the address `target`, for the check of its certificate."""
        address = self._addresses.get(broker)
        if address is not None and self._resolve(address) == target:
            return address.host
        for address in (*self._addresses.values(), *self._bootstrap):
            if address.port == target[1] and self._resolve(address) == target:
                return address.host
        return target[0]

    def address_map(
        self, listener: ListenerOptions, broker: int, host: str, port: int
    ) -> tuple[str, int] | None:
        """Return the gateway's address that replaces a broker's address in responses to clients.

        None: the listener has no port for this broker. The broker's own address, `host` and `port`, is stored. A
        negative id means "no broker" in Kafka; then `host` and `port` are returned unchanged.
        """
        if broker < 0:
            return host, port  # "no such broker", such as for a missing coordinator
        self.learn(broker, host, port)
        advertised = listener.advertised_broker(broker)
        if advertised is None:
            self._stats.unnamed_brokers += 1
        return advertised

    def _address_problem(self, broker: int, host: str, port: int) -> str:
        """Return what is wrong with a broker's id, host or port; "" if nothing is."""
        if not 0 <= broker <= _ID_MAX:
            return "id"
        if not is_host(host):
            return "host"
        if not 0 < port <= _PORT_MAX:
            return "port"
        return "count" if broker not in self._addresses and len(self._addresses) >= _BROKERS_MAX else ""

    def _reject(self, problem: str, broker: int, host: str, port: int) -> None:
        self._stats.brokers_refused[problem] += 1
        rejected = (broker, host, port)
        if rejected in self._logged or len(self._logged) >= _LOGGED_MAX:
            return
        self._logged.add(rejected)
        event(
            logger,
            logging.WARNING,
            "a broker's address is rejected",
            wrong=problem,
            broker=shorten(broker),
            host=shorten(host),
            port=shorten(port),
        )

    def _resolve(self, address: Address) -> tuple[str, int] | None:
        ip = address.host if is_ip(address.host) else self._ips.get(address.host)
        return (ip, address.port) if ip else None


# The broker map on disk: `brokers.json` in `[state] directory`, replaced whole and atomically.
#
# It only saves a restarted proxy the wait for its first Metadata response, so a damaged or unwritable file costs one
# log line and nothing else.


_NAME: Final = "brokers.json"
_BYTES_MAX: Final = 4 * 1024 * 1024
_MODE: Final = 0o644
_STORED: Final = Decoder(dict[Annotated[int, Meta(ge=-(2**31), lt=2**31)], Address])


class MapFile:
    """The file that keeps a broker map over a restart. Both methods block, so call them outside of the event loop.

    Args:
        stats: counts the results of writing.
    """

    def __init__(self, directory: Path, stats: Stats) -> None:
        self._path = directory / _NAME
        self._stats = stats
        self._problem = ""  # the reason of the last failed write, as logged

    def read(self) -> dict[int, Address]:
        """Return the addresses by broker id from the file; empty if there is no readable file.

        The addresses are not validated here.
        """
        try:
            return _STORED.decode(read(self._path, _BYTES_MAX))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            event(logger, logging.WARNING, "broker map not read", path=str(self._path), detail=reason(error))
            return {}

    def write(self, addresses: Mapping[int, Address]) -> bool:
        """Replace the file; returns False if that fails, which is counted, and logged when the reason is a new one."""
        try:
            store(self._path, (encode(dict(sorted(addresses.items()))),), _MODE)
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


# The broker maps that a configuration asks for: of the brokers behind clients' listeners, and of leaders.


class Maps(NamedTuple):
    """The broker maps of one process.

    Args:
        brokers: the brokers' addresses that clients' connections lead to.
        leaders: the addresses that followers' connections lead to; they are another listener of the brokers.
        follow: whether `brokers` is updated from the cluster's metadata; a sidecar's upstreams are fixed.
        replicates: whether `leaders` has any address, so that this process throttles replication.
    """

    brokers: BrokerMap
    leaders: BrokerMap
    follow: bool
    replicates: bool


def maps_of(config: Config, stats: Stats) -> Maps:
    """Create the broker maps of a configuration, filled with the configured addresses."""
    upstreams = config.upstreams(replicates=False)
    leaders = config.upstreams(replicates=True)
    if not upstreams and config.cluster.bootstrap == tuple(leaders.values()):
        upstreams = leaders  # no other address of the brokers is configured
    brokers = BrokerMap(config.cluster.bootstrap or tuple(upstreams.values()), stats)
    _learn(brokers, upstreams)
    brokers.set_live(upstreams)
    behind = BrokerMap(tuple(leaders.values()), stats)
    _learn(behind, leaders)
    return Maps(brokers, behind, not upstreams, bool(leaders))


def _learn(brokers: BrokerMap, addresses: Mapping[int, Address]) -> None:
    for broker, address in addresses.items():
        brokers.learn(broker, *address)
