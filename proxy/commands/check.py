"""`sluice check`: validates a configuration and its quotas file, and shows what `serve` would do.

It changes nothing, and binds ports for a moment at most (`proxy.commands.check_machine`). With `--format json` it
prints one document (`proxy.commands.check_json`), also after an error.
"""

import argparse
import asyncio
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from commandline.amounts import count
from commandline.exit_codes import OK
from proxy import logs
from proxy.commands import check_fleet, check_json
from proxy.commands.check_machine import machine_warnings
from proxy.commands.check_topic import check_topics, require_topic_library
from proxy.config import Address, Config, ListenerOptions, load, read_definitions, unenforced, unwritable
from proxy.errors import SluiceError
from quotas.definitions.amounts import write_bytes
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity

if TYPE_CHECKING:
    from proxy.certificates import Certificates

DESCRIPTION: Final = (
    "Validate a configuration and its quotas file, connect to the cluster, and show what `sluice serve` would do. "
    "Exit code 0 if all is well, 1 if something is wrong."
)
ENTITIES_SHOWN_MAX: Final = 50
BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    logs.set_up("error", "text")  # what is found is printed, not logged
    if options.format == "json":
        return _print_document(options)
    config = load(options.config, os.environ)
    definitions = read_definitions(config.quotas, config.source.quota_text)
    tls(config)
    require_topic_library(config)
    lines = [
        *listeners(config),
        *quotas(config, definitions),
        *replication(config),
        *check_fleet.lines(config.fleet),
        *reassignment(config),
        *capture(config),
    ]
    lines += [f"admin: {f'http://{config.admin.bind}/' if config.admin.bind else 'none'}"]
    warnings = (*config.warnings, *unwritable(config), *unenforced(definitions.entries()))
    lines += [f"warning: {warning}" for warning in warnings]
    print("\n".join(lines))
    if options.offline:
        print(f"{options.config} is right; the cluster was not asked.")
        return OK
    for warning in machine_warnings(config):
        print(f"warning: {warning}")
    found, problem = ask_cluster(config)
    if problem:
        raise SluiceError(problem)
    print("\n".join((*cluster(config, found), *check_topics(config, _context(config)))))
    unknown, problem = ask_advertised(config)
    for broker, why in unknown.items():
        print(f"warning: broker {broker} did not report what it advertises: {why}")
    if problem:
        raise SluiceError(problem)
    print(f"{options.config} is right.")
    return OK


def _print_document(options: argparse.Namespace) -> int:
    """Check, and print one JSON document, also after an error."""
    document: dict[str, object] = {"config": str(options.config), "problem": "", "warnings": []}
    try:
        config = load(options.config, os.environ)
        definitions = read_definitions(config.quotas, config.source.quota_text)
        tls(config)
        require_topic_library(config)
        list(capture(config))  # is pyarrow there?
        document |= check_json.describe(config, _limits(definitions))
        warnings = [*config.warnings, *unwritable(config), *unenforced(definitions.entries())]
        document["warnings"] = warnings
        if not options.offline:
            warnings += machine_warnings(config)
            document["cluster"] = _cluster(config)
    except SluiceError as error:
        document["problem"] = str(error)
        raise
    finally:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    return OK


def _cluster(config: Config) -> dict[str, object]:
    found, problem = ask_cluster(config)
    if problem:
        raise SluiceError(problem)
    unknown, problem = ask_advertised(config)
    if problem:
        raise SluiceError(problem)
    missing = {listener.name: _without_port(listener, sorted(found)) for listener in config.listeners}
    return check_json.describe_cluster(found, unknown, {name: ids for name, ids in missing.items() if ids})


def capture(config: Config) -> Iterator[str]:
    """Yield lines on what is captured.

    Raises:
        ConfigError: pyarrow is missing.
    """
    options = config.capture
    if options.directory is None:
        return
    from proxy.capture import require_pyarrow

    require_pyarrow()
    kept = {"off": "no requests", "blank": "requests without payload", "keep": "requests with payload"}
    share = f"{options.sample:.0%} of the connections"
    yield f"capture: {share} to {options.directory}, {kept[options.frames]} kept"
    yield f"  files of {write_bytes(options.rotate_bytes)} bytes or {options.rotate_seconds:g} s"
    yield f"  at most {write_bytes(options.max_bytes)} bytes in all"


def listeners(config: Config) -> Iterator[str]:
    """Yield lines on each listener: the ports that it binds, and the addresses that clients see."""
    for listener in config.listeners:
        kind = "replication" if listener.replicates else "sidecar" if listener.sidecar else "gateway"
        yield f'listener "{listener.name}": {kind} on {listener.bind}, {_ports(listener)}'
        if listener.tls is not None:
            yield f"  TLS, client certificates {listener.tls.client_auth}"
        if listener.proxy_protocol:
            networks = ", ".join(map(str, listener.proxy_protocol_sources))
            yield f"  PROXY protocol, trusted from {networks}"
        if listener.sidecar:
            where = ", ".join(f"{broker} at {address}" for broker, address in listener.upstreams.items())
            yield f"  in front of broker {where}; addresses in responses are not changed"
        else:
            bootstrap = Address(listener.advertised_host, listener.advertised_bootstrap_port)
            yield f"  clients see {bootstrap}, and broker N at {_advertised(listener)}"


def _ports(listener: ListenerOptions) -> str:
    bootstrap = "no bootstrap port" if listener.replicates else f"bootstrap port {listener.bootstrap_port}"
    if listener.sidecar:
        ports = ", ".join(f"{listener.broker_port(broker)}" for broker in listener.upstreams)
        return f"{bootstrap}, broker ports {ports}"
    last = listener.broker_id_max
    first_port, last_port = listener.broker_port(0), listener.broker_port(last)
    return f"{bootstrap}, broker ports {first_port} to {last_port} (ids 0 to {last})"


def _advertised(listener: ListenerOptions) -> str:
    return f"{listener.advertised_host}:{listener.advertised_first_broker_port} + N"


def quotas(config: Config, definitions: Definitions) -> Iterator[str]:
    """Yield lines on the quotas: policy, who may alter them, and the limits by entity."""
    settings = config.quotas
    windows = settings.window_samples * settings.window_seconds
    arithmetic = f"{settings.window_samples} windows of {settings.window_seconds} s"
    if settings.policy == "schedule":
        arithmetic = f"bursts of {settings.burst_seconds:g} s, holds up to {settings.hold_seconds_max:g} s"
    yield (
        f"quotas: policy {settings.policy}, mode {settings.mode}, scope {settings.scope}, {arithmetic}, "
        f"mutes up to {settings.mute_seconds_max:g} s"
    )
    if settings.partition_mutations_rate is not None:
        burst = settings.partition_mutations_burst
        burst = settings.partition_mutations_rate * windows if burst is None else burst
        yield f"  all clients together: {settings.partition_mutations_rate:g} partition mutations/s, {burst:g} at once"
    yield f"  {_alterations(config)}"
    limits = _limits(definitions)
    for entity, values in list(limits.items())[:ENTITIES_SHOWN_MAX]:
        yield f"  {_entity(entity)}: " + ", ".join(_limit(key, value) for key, value in values.items())
    if len(limits) > ENTITIES_SHOWN_MAX:
        yield f"  and {len(limits) - ENTITIES_SHOWN_MAX} more"
    default = limits.get(Entity(client_id=DEFAULT), {})
    free = [key.removesuffix("_byte_rate") for key in BYTE_RATES if key not in default]
    if free:
        yield f"  every other client id: no {' and no '.join(free)} limit"


def _alterations(config: Config) -> str:
    """Return where altered quotas are stored, and which principals may alter them."""
    settings = config.quotas
    if settings.store == "cluster":
        return "altered at the brokers: these are their own quotas"
    if settings.file is None and settings.store == "file":
        return (
            'kafka-configs cannot alter them: there is no quotas file (file = "quotas.toml" under [quotas])'
        )
    if settings.store == "file" and config.fleet.configured:
        return (
            f"kept in {settings.file}, at each member of the fleet; kafka-configs cannot alter them: "
            'store = "topic" under [quotas] lets it'
        )
    who = (
        ["every client"]
        if "*" in settings.alter_principals
        else [f"user {n!r}" for n in settings.alter_principals]
    )
    if (
        settings.alter_principals
        and "*" not in settings.alter_principals
        and not _clients_authenticate(config)
    ):
        who[-1] += (
            " (known only where clients log in, and neither [cluster] sasl_mechanism nor a listener's client_auth "
            "says that they do)"
        )
    who += [
        f'clients of listener "{listener.name}", from this machine alone'
        for listener in config.listeners
        if config.trusts(listener) and "*" not in settings.alter_principals
    ]
    if not who:
        return 'kafka-configs cannot alter them: no user may (alter_principals = ["NAME"] under [quotas])'
    place = f"topic {settings.topic}" if settings.store == "topic" else settings.file
    return f"kept in {place}; altered by {', '.join(who)}"


def _clients_authenticate(config: Config) -> bool:
    """Whether clients authenticate by this configuration: to brokers with SASL, or to Sluice with certificates."""
    return bool(config.cluster.sasl_mechanism) or any(
        listener.tls is not None and listener.tls.client_auth != "none" for listener in config.listeners
    )


def replication(config: Config) -> Iterator[str]:
    """Yield a line on the throttling of replication; none without a replication listener."""
    if not any(listener.replicates for listener in config.listeners):
        return
    settings = config.replication
    if settings.throttled == "off":
        yield "replication: not throttled"
    elif settings.throttled == "cluster":
        yield f"replication: policy {settings.policy}, throttled as the cluster's own configs say"
    else:
        what = (
            "what reassignments add"
            if settings.throttled == "reassignments"
            else "the lists of the configuration"
        )
        rates = [
            f"{side} {'unlimited' if limit is None else write_bytes(limit) + ' bytes/s'}"
            for side, limit in (("leaders", settings.leader_rate), ("followers", settings.follower_rate))
        ]
        yield f"replication: policy {settings.policy}, throttled: {what}; {', '.join(rates)}"


def reassignment(config: Config) -> Iterator[str]:
    """Yield a line on the limits of reassignments; none if they pass unchanged."""
    settings = config.reassignment
    if not settings.batches:
        return
    limits = settings.limits
    yield (
        f"reassignments: {count(limits.parallel_replica_count, 'replica')} of a partition, "
        f"{count(limits.parallel_partition_count, 'partition')}, {count(limits.parallel_leader_movements, 'leader')}, "
        f"{count(limits.max_concurrent_replica_movements, 'replica')} in all at once; journal in {settings.journal}"
    )


def _limits(definitions: Definitions) -> dict[Entity, dict[str, float]]:
    """Return the limits by entity: the static settings, overridden by the entries."""
    limits: dict[Entity, dict[str, float]] = {}
    static = definitions.static
    for key, default, override in (
        ("producer_byte_rate", static.producer_default, static.producer_override),
        ("consumer_byte_rate", static.consumer_default, static.consumer_override),
    ):
        if default is not None:
            limits.setdefault(Entity(client_id=DEFAULT), {})[key] = default
        for client_id, rate in override.items():
            limits.setdefault(Entity(client_id=client_id), {})[key] = rate
    for entity, values in definitions.entries():
        limits.setdefault(entity, {}).update(values)
    return limits


def _entity(entity: Entity) -> str:
    parts = []
    for part, name in zip(Entity._fields, entity, strict=True):
        if name is not None:
            title = part.replace("_", " ")
            parts.append(f"every other {title}" if name is DEFAULT else f"{title} {name!r}")
    return " of ".join(reversed(parts)) if len(parts) > 1 else "".join(parts)


def _limit(key: str, value: float) -> str:
    if key in BYTE_RATES:
        return f"{key} {write_bytes(int(value))}"
    return f"{key} {value:g}"


def tls(config: Config) -> "Certificates":
    """Read all certificates.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    # Imported late: most configurations have none.
    from proxy.certificates import Certificates
    from proxy.stats import Stats

    return Certificates(config, Stats())


def _context(config: Config) -> Callable[[], ssl.SSLContext] | None:
    side = tls(config).brokers
    return None if side is None else lambda: side.context


def ask_cluster(config: Config) -> tuple[Mapping[int, Address], str]:
    """Ask the cluster for its brokers once; return them, or why there is no response."""
    # Imported late: judging a file needs no sockets.
    from proxy.cluster import BrokerClient, BrokerMap, Poller, login_of
    from proxy.stats import Stats

    brokers = BrokerMap(config.cluster.bootstrap, Stats())
    poller = Poller(BrokerClient(brokers, login_of(config.cluster), _context(config)), None, follow=True)
    asyncio.run(poller.poll())
    return brokers.addresses(), poller.problem


def ask_advertised(config: Config) -> tuple[Mapping[int, str], str]:
    """Ask the brokers behind sidecars what they advertise; return those without a response, and the problem or ""."""
    # Imported late: as above.
    from proxy.cluster import Advertised, BrokerClient, BrokerMap, Poller, login_of
    from proxy.stats import Stats

    context = _context(config)
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


def cluster(config: Config, found: Mapping[int, Address]) -> Iterator[str]:
    """Yield lines on the cluster's brokers, and a warning for each without a port."""
    yield f"cluster: {count(len(found), 'broker')}"
    for broker, address in sorted(found.items()):
        yield f"  broker {broker} at {address}"
    for listener in config.listeners:
        beyond = _without_port(listener, sorted(found))
        if beyond:
            names = ", ".join(map(str, beyond))
            yield f'warning: listener "{listener.name}" has no port for broker {names}: clients never see it'


def _without_port(listener: ListenerOptions, brokers: Sequence[int]) -> list[int]:
    return [broker for broker in brokers if not listener.sidecar and broker > listener.broker_id_max]
