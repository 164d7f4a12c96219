"""`sluice check`: validates a configuration and its quotas file, and shows what `serve` would do.

It changes nothing; ports are bound for a moment only (`proxy.commands.check`). With `--format json` it prints
one document (`proxy.commands.check_text`), also after an error. `check_text` makes the lines for people;
`check_cluster` sends requests to the cluster, and `check_fleet` to a member of the fleet.
"""

import argparse
import asyncio
import errno
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from commandline.amounts import count
from commandline.arguments import add_format
from commandline.program import NEGATIVE, OK
from proxy.commands import check_text
from proxy.commands.check_capacities import capacities_document, capacity_warnings
from proxy.commands.servers import add_admin_files, admin_files
from proxy.config import Address, Config, ListenerOptions, load, read_definitions, unenforced, unwritable
from proxy.config.checks import PortRange, bound_ports
from proxy.config.options import BROKERS_NAMED_MAX
from proxy.config.principals import certified_as
from proxy.control.cluster.bypasses import is_unguarded, own_things, warning_of
from proxy.control.quotas.quota_topic import access_of, audit_spec, compacted_spec, require_aiokafka
from proxy.system import compiled, logs
from proxy.system.admin_access import AdminAccess, AdminFiles
from proxy.system.errors import SluiceError
from proxy.system.hosts import is_ip
from proxy.topics.topic import Access, ProblemError, TopicSpec, find
from quotas.definitions.definitions import Definitions

if TYPE_CHECKING:
    from proxy.control.reload import Certificates


DESCRIPTION: Final = (
    "Validate a configuration and its quotas file, connect to the cluster, compare the members of its fleet, and show "
    "what `sluice serve` would do. Exit code 0 if all is well, 1 if something is wrong, 3 if members of the fleet "
    "differ."
)

_WARNING: Final = "warning: "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice check`."""
    parser.set_defaults(command=run)
    parser.add_argument("--config", type=Path, metavar="FILE", required=True, help="the configuration, TOML")
    parser.add_argument(
        "--offline",
        action="store_true",
        help="judge the files alone: do not connect to the cluster or the fleet, resolve names, or try ports",
    )
    parser.add_argument(
        "--admin",
        metavar="HOST:PORT",
        help="the admin port of a member of the fleet, or its URL (default: admin.bind of the configuration)",
    )
    add_admin_files(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Check the configuration and print the result; returns the exit code."""
    logs.set_up("error", "text")  # what is found is printed, not logged
    if options.format == "json":
        return _print_document(options)
    config, definitions = _read(options)
    warned = _say(check_text.described(config, definitions), _warnings(config, definitions))
    if options.offline:
        print(f"{_verdict(options, warned)}; the cluster was not asked.")
        return OK
    warned += _say((), machine_warnings(config))
    found = ask_cluster(config)
    brokers = (f"  broker {broker} at {address}" for broker, address in sorted(found.items()))
    fleet_tls = tls(config).fleet_tls
    warned += _say(
        [f"cluster: {count(len(found), 'broker')}", *brokers, *check_topics(config, fleet_tls)],
        [*name_warnings(config, found), *unguarded_warnings(config, fleet_tls)],
    )
    if problem := port_problem(config.listeners, found):
        raise SluiceError(problem)
    unknown, problem = ask_advertised(config)
    lacks = "did not report what it advertises"
    warned += _say((), (f"broker {broker} {lacks}: {why}" for broker, why in unknown.items()))
    if problem:
        raise SluiceError(problem)
    members = _ask_members(config, definitions, options)
    warned += _say(check_text.compared(members))
    if members is not None and members.differences:
        print(f"{options.config} is right, but members of the fleet differ.")
        return NEGATIVE
    print(f"{_verdict(options, warned)}.")
    return OK


def _say(lines: Iterable[str], warnings: Iterable[str] = ()) -> int:
    """Print lines and warnings; return how many of them are warnings."""
    said = [*lines, *(f"{_WARNING}{warning}" for warning in warnings)]
    for line in said:
        print(line)
    return sum(line.startswith(_WARNING) for line in said)


def _verdict(options: argparse.Namespace, warned: int) -> str:
    more = f", with {count(warned, 'warning')}" if warned else ""
    return f"{options.config} is right{more}"


def _read(options: argparse.Namespace) -> tuple[Config, Definitions]:
    config = load(options.config, os.environ)
    definitions = read_definitions(config.quotas, config.source.quota_text)
    definitions.replication = config.replication.terms()
    tls(config)
    check_text.check_secret(config.fleet, may_be_missing=options.offline)
    require_topic_library(config)
    return config, definitions


def _warnings(config: Config, definitions: Definitions) -> Sequence[str]:
    found = (*config.warnings, *unwritable(config), *unenforced(definitions.entries(), config.quotas.file))
    found = (*found, *capacity_warnings(definitions, config.quotas.scope))
    unused = compiled.warning()
    return (*found, unused) if unused else found


def _print_document(options: argparse.Namespace) -> int:
    """Check, and print one JSON document, also after an error."""
    document: dict[str, object] = {"config": str(options.config), "problem": "", "warnings": []}
    try:
        config, definitions = _read(options)
        list(check_text.capture(config))  # is pyarrow there?
        document |= check_text.describe(config, check_text.limits_of(definitions))
        document["capacities"] = list(capacities_document(definitions, config.quotas.scope))
        warnings = document["warnings"] = [*_warnings(config, definitions)]
        if options.offline:
            return OK
        warnings += machine_warnings(config)
        found = ask_cluster(config)
        warnings += name_warnings(config, found)
        document["cluster"], problem = _cluster(config, found)
        if problem:
            raise SluiceError(problem)
        fleet_tls = tls(config).fleet_tls
        lines = [*check_topics(config, fleet_tls)]
        document["topics"] = [line for line in lines if not line.startswith(_WARNING)]
        warnings += [line.removeprefix(_WARNING) for line in lines if line.startswith(_WARNING)]
        warnings += unguarded_warnings(config, fleet_tls)
        members = _ask_members(config, definitions, options)
        if members is None:
            return OK
        document["members"] = check_text.members_document(members)
        return NEGATIVE if members.differences else OK
    except SluiceError as error:
        document["problem"] = str(error)
        raise
    finally:
        print(json.dumps(document, indent=2, ensure_ascii=False))


def _cluster(config: Config, found: Mapping[int, Address]) -> tuple[dict[str, object], str]:
    """Return the document's part on the cluster, and a line on the brokers that have no port; "" if all have one."""
    unknown, problem = ask_advertised(config)
    if problem:
        raise SluiceError(problem)
    missing = {listener.name: listener.without_port(found) for listener in config.listeners}
    described = {
        "brokers": [{"id": broker, "address": str(address)} for broker, address in sorted(found.items())],
        "advertised_unknown": [{"id": broker, "reason": why} for broker, why in sorted(unknown.items())],
        "without_port": [{"listener": name, "brokers": ids} for name, ids in missing.items() if ids],
    }
    return described, port_problem(config.listeners, found)


def _ask_members(
    config: Config, definitions: Definitions, options: argparse.Namespace
) -> check_text.Members | None:
    """Ask a member of the fleet for the others, and compare them; None without a fleet."""
    if not config.fleet.configured:
        return None
    access = _access(config, options)
    return check_text.ask_members(config, definitions, options.admin, access, str(options.config))


def _access(config: Config, options: argparse.Namespace) -> AdminAccess:
    """Return how a member's admin port is reached: by the options or, without any, by `[admin]` of the configuration.

    Its certificate, if its key has no password, and its token are shown to the port; the port of this configuration is
    known by its certificate.
    """
    files, admin = admin_files(options), config.admin
    if not any(files):
        files = AdminFiles(token_file=admin.token_file)
        tls = admin.tls
        if tls is not None and options.admin is None:
            files = files._replace(ca_file=tls.cert_file, own_port=True)
        if (
            tls is not None
            and tls.client_auth == "required"
            and not (tls.key_password or tls.key_password_file)
        ):
            files = files._replace(cert_file=tls.cert_file, key_file=tls.key_file)
    return AdminAccess(files)


# ----------------------------------------------------------------------------------------------------
# The cluster


def tls(config: Config) -> "Certificates":
    """Read all certificates of the configuration.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    # Imported late: most configurations have none.
    from proxy.control.reload import Certificates
    from proxy.system.stats import Stats

    return Certificates(config, Stats())


def context_of(config: Config) -> Callable[[], ssl.SSLContext] | None:
    """Return a function that returns the TLS context for connections to brokers; None if they have no TLS."""
    side = tls(config).brokers
    return None if side is None else lambda: side.context


def ask_cluster(config: Config) -> Mapping[int, Address]:
    """Request the cluster's metadata once; return the brokers' addresses by id.

    Raises:
        SluiceError: no broker responds.
    """
    # Imported late: judging a file needs no sockets.
    from proxy.control.cluster import BrokerClient, BrokerMap, Poller, login_of
    from proxy.system.stats import Stats

    brokers = BrokerMap(config.cluster.bootstrap, Stats())
    poller = Poller(BrokerClient(brokers, login_of(config.cluster), context_of(config)), None, follow=True)
    asyncio.run(poller.poll())
    if poller.problem:
        raise SluiceError(poller.problem)
    return brokers.addresses()


def ask_advertised(config: Config) -> tuple[Mapping[int, str], str]:
    """Request from the brokers behind sidecars (listeners with `upstreams`) the addresses that they advertise.

    Returns:
        The ids of the brokers without a response, each with the reason; and a text about wrong addresses, or "".
    """
    # Imported late: as above.
    from proxy.control.cluster import Advertised, BrokerClient, BrokerMap, Poller, login_of
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


def port_problem(listeners: Sequence[ListenerOptions], brokers: Iterable[int]) -> str:
    """Return which listener has no port for which of the brokers, and how to give it one; "" if none is missing."""
    found = [(listener, listener.without_port(brokers)) for listener in listeners]
    return "; ".join(listener.port_problem(missing) for listener, missing in found if missing)


# ----------------------------------------------------------------------------------------------------
# This machine: host names that do not resolve, and ports that cannot be bound. Warnings, not errors: clients may
# resolve names that this machine does not, and while Sluice runs here its own ports are taken.


_PORTS_TRIED_MAX: Final = 5000  # of one key
_PORTS_SHOWN_MAX: Final = 5


def machine_warnings(config: Config) -> Iterator[str]:
    """Yield warnings about host names that do not resolve here, and ports that `serve` cannot bind."""
    yield from _unresolved(config)
    reuse = any(listener.reuse_port for listener in config.listeners)
    for ports in bound_ports(config):
        yield from _unbindable(ports, reuse)


def _unresolved(config: Config) -> Iterator[str]:
    for index, listener in enumerate(config.listeners):
        yield from _unresolved_name(f"listeners[{index}].advertised_host", listener.advertised_host)


def name_warnings(config: Config, brokers: Iterable[int]) -> Iterator[str]:
    """Yield warnings about names of brokers that do not resolve, or that no certificate has."""
    brokers = list(brokers)
    yield from unresolved_brokers(config, brokers)
    yield from certificate_warnings(config, brokers)


def unresolved_brokers(config: Config, brokers: Iterable[int]) -> Iterator[str]:
    """Yield a warning for each listener whose `broker_host` gives a broker of the cluster a name that does not resolve.

    Args:
        brokers: the ids of the cluster's brokers; the names of the first ten are tried.
    """
    for index, listener in enumerate(config.listeners):
        for broker in sorted(brokers)[:BROKERS_NAMED_MAX] if listener.by_name else ():
            address = listener.advertised_broker(broker)
            problem = next(
                _unresolved_name(f"listeners[{index}].broker_host", address.host if address else ""), ""
            )
            if problem:
                yield problem
                break


def certificate_warnings(config: Config, brokers: Iterable[int]) -> Iterator[str]:
    """Yield a warning for each listener with `broker_host` whose certificates lack a name that clients connect to.

    Args:
        brokers: the ids of the cluster's brokers.
    """
    sides = tls(config).listeners
    for index, listener in enumerate(config.listeners):
        if not listener.by_name:
            continue
        names = {*sides[listener.name].host_names()}
        addresses = map(listener.advertised_broker, sorted(brokers))
        hosts = [listener.advertised_host, *(address.host for address in addresses if address is not None)]
        lacking = [host for host in hosts if names.isdisjoint(certified_as(host))]
        if lacking:
            yield (
                f"listeners[{index}].tls.cert_file: no certificate has the name {lacking[0]!r}"
                f"{f' (nor {len(lacking) - 1} more)' if len(lacking) > 1 else ''}: clients refuse the connection"
            )


def _unresolved_name(path: str, host: str) -> Iterator[str]:
    if is_ip(host):
        return
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a name that cannot even be asked for is a UnicodeError
        why = error.strerror if isinstance(error, OSError) else str(error)
        yield (
            f"{path}: {host!r} does not resolve on this machine ({why}): clients are told this name, and have to "
            "resolve it"
        )


def _unbindable(ports: PortRange, reuse: bool) -> Iterator[str]:
    refused: dict[int, list[int]] = {}
    for port in islice(range(ports.first, ports.last + 1), _PORTS_TRIED_MAX):
        number = _bind_error(ports.host, port, reuse)
        if number:
            refused.setdefault(number, []).append(port)
    for number, found in refused.items():
        shown = ", ".join(map(str, found[:_PORTS_SHOWN_MAX]))
        more = f" and {len(found) - _PORTS_SHOWN_MAX} more" if len(found) > _PORTS_SHOWN_MAX else ""
        expected = ", as it is while Sluice runs here" if number == errno.EADDRINUSE else ""
        noun = "port" if len(found) == 1 else "ports"
        yield (
            f"{ports.path}: {noun} {shown}{more} of {ports.host} cannot be bound: {os.strerror(number)}{expected}"
        )


def _bind_error(host: str, port: int, reuse: bool) -> int:
    """Bind the port as the listener does, and close it; returns the errno, 0 if it can be bound."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind((host, port))
        except socket.gaierror:
            return errno.EADDRNOTAVAIL
        except OSError as error:
            return error.errno or errno.EIO
    return 0


# ----------------------------------------------------------------------------------------------------
# Sluice's own topics: whether they can be used now


def require_topic_library(config: Config) -> None:
    """Check that aiokafka is installed if the configuration needs it.

    Raises:
        StartError: aiokafka is needed, and missing.
    """
    if config.quotas.store == "topic":
        require_aiokafka()
    elif config.reassignment.in_topic:
        require_aiokafka('[reassignment] journal = "topic"')
    elif config.fleet.has_group:
        require_aiokafka("[fleet] without holder")


def check_topics(config: Config, tls: Callable[[], ssl.SSLContext] | None) -> Iterator[str]:
    """Yield a line for each topic in which Sluice keeps data: its state, or a warning why it cannot be used.

    Args:
        tls: returns the TLS context towards the topics' brokers; None for plaintext.

    Raises:
        SluiceError: the quota topic, or the journal's, cannot be read.
    """
    access = access_of(config.fleet_cluster, tls)
    for spec, needed in _specs(config):
        try:
            yield f"topic {spec.name}: {asyncio.run(topic_state(access, spec))}"
        except ProblemError as error:
            if needed:
                raise SluiceError(error.problem.text) from error
            yield f"{_WARNING}{error.problem.text}"


def unguarded_warnings(config: Config, tls: Callable[[], ssl.SSLContext] | None) -> Iterator[str]:
    """Yield a warning if the brokers with Sluice's own topics or group have no authorizer, so that anyone may write.

    Args:
        tls: returns the TLS context towards these brokers; None for plaintext.
    """
    things = own_things(config)
    if not things:
        return
    try:
        unguarded = asyncio.run(is_unguarded(access_of(config.fleet_cluster, tls)))
    except OSError as error:
        yield f"whether the brokers have an authorizer was not found out: {error}"
        return
    if unguarded:
        yield warning_of(things)


def _specs(config: Config) -> Iterator[tuple[TopicSpec, bool]]:
    """Yield the topics, and whether each must be readable: that of the quotas and that of the journal."""
    quotas, fleet = config.quotas, config.fleet
    if quotas.store == "topic":
        yield compacted_spec(quotas.topic), True
        if quotas.audit_topic:
            yield audit_spec(quotas), False
    if config.reassignment.in_topic:
        yield compacted_spec(config.reassignment.journal_topic), True
    if fleet.has_group:
        yield TopicSpec(fleet.group, one_partition=False, partitions=fleet.parts), False


async def topic_state(access: Access, spec: TopicSpec) -> str:
    """Return whether a topic of Sluice exists and can be used, in words; raises a ProblemError if it cannot."""
    found = await find(access, spec)
    if found is None:
        return "does not exist; Sluice creates it when it starts"
    if found.write_problem is not None:
        return f"can be read only: {found.write_problem.text}"
    return "; ".join(("can be read and written", *found.differences))
