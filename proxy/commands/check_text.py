"""The lines of `sluice check` about a configuration, for people; pure, except for a check that pyarrow is installed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from commandline.amounts import count
from proxy.commands.check_capacities import capacities, groups
from proxy.commands.quota_formats import as_table
from proxy.commands.servers import Document, read_document
from proxy.config import Address, AdminOptions, Config, FleetOptions, ListenerOptions, engine_options
from proxy.config.options import ID
from proxy.config.schema import Options
from proxy.system import compiled
from proxy.system.admin_access import AdminAccess
from proxy.system.errors import ConfigError, ServerError
from proxy.system.files import read_secret
from quotas.definitions.amounts import write_bytes
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import BYTE_RATES, CAPACITY_KEYS, CEILINGS, MEMBER

_ENTITIES_SHOWN_MAX: Final = 50


def described(config: Config, definitions: Definitions) -> Iterator[str]:
    """Yield all lines on a configuration and its quotas.

    Raises:
        ConfigError: pyarrow is missing, and captures are configured.
    """
    yield from listeners(config)
    yield from quotas(config, definitions)
    yield from groups(definitions)
    yield from capacities(definitions, config.quotas.scope)
    yield from replication(config)
    yield from fleet(config.fleet)
    yield from reassignment(config)
    yield from capture(config)
    yield admin(config.admin)
    yield f"data path: {compiled.form()}"


def admin(options: AdminOptions) -> str:
    """Return the line on the admin port: its URL, and what it asks clients for."""
    if options.bind is None:
        return "admin: none"
    asked = ["a token"] if options.token_file is not None else []
    if options.tls is not None and options.tls.client_auth != "none":
        asked.append(f"client certificates {options.tls.client_auth}")
    return f"admin: {options.scheme}://{options.bind}/{''.join(f', {one}' for one in asked)}"


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
            brokers = f"{listener.advertised_host}:{listener.advertised_first_broker_port} + N"
            if listener.by_name:
                brokers = str(
                    Address(listener.broker_host.replace(ID, "N"), listener.advertised_bootstrap_port)
                )
            yield f"  clients see {bootstrap}, and broker N at {brokers}"


def _ports(listener: ListenerOptions) -> str:
    bootstrap = "no bootstrap port" if listener.replicates else f"bootstrap port {listener.bootstrap_port}"
    if listener.sidecar:
        ports = ", ".join(f"{listener.broker_port(broker)}" for broker in listener.upstreams)
        return f"{bootstrap}, broker ports {ports}"
    if listener.by_name:
        others = {"refuse": "no other name", "bootstrap": "any other name is the bootstrap's"}
        return f"{bootstrap}, brokers by name; {others[listener.unknown_names]}"
    last = listener.broker_id_max
    first_port, last_port = listener.broker_port(0), listener.broker_port(last)
    return f"{bootstrap}, broker ports {first_port} to {last_port} (ids 0 to {last})"


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
    limits = limits_of(definitions)
    defaults = _defaults(limits)
    for entity, values in list(limits.items())[:_ENTITIES_SHOWN_MAX]:
        yield f"  {_entity(entity)}: {_limits(values)}{_inherited(entity, values, defaults)}"
    if len(limits) > _ENTITIES_SHOWN_MAX:
        yield f"  and {len(limits) - _ENTITIES_SHOWN_MAX} more"
    default = limits.get(Entity(client_id=DEFAULT), {})
    free = [key.removesuffix("_byte_rate") for key in CAPACITY_KEYS if key not in default]
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
    if "*" in settings.alter_principals:
        who = ["every client"]
    else:
        who = [f"user {name!r}" for name in settings.alter_principals]
        if who and not _clients_authenticate(config):
            who[-1] += (
                " (known only where clients log in, and neither [cluster] sasl_mechanism nor a listener's client_auth "
                "says that they do)"
            )
        who += [
            f'clients of listener "{listener.name}", from this machine alone'
            for listener in config.listeners
            if config.trusts(listener)
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
    journal = f"topic {settings.journal_topic}" if settings.in_topic else settings.directory
    yield (
        f"reassignments: {count(limits.parallel_replica_count, 'replica')} of a partition, "
        f"{count(limits.parallel_partition_count, 'partition')}, {count(limits.parallel_leader_movements, 'leader')}, "
        f"{count(limits.max_concurrent_replica_movements, 'replica')} in all at once; journal in {journal}"
    )


def limits_of(definitions: Definitions) -> dict[Entity, dict[str, float]]:
    """Return the limits by entity and quota key: those of the settings, overridden by the quota entries."""
    limits: dict[Entity, dict[str, float]] = {}
    for _, key, default, override in definitions.static.sides():
        if default is not None:
            limits.setdefault(Entity(client_id=DEFAULT), {})[key] = default
        for client_id, rate in override.items():
            limits.setdefault(Entity(client_id=client_id), {})[key] = rate
    for entity, values in definitions.entries():
        if entity.capacity is None and MEMBER not in values:
            limits.setdefault(entity, {}).update(values)
    return limits


def _entity(entity: Entity) -> str:
    parts = []
    for part, name in zip(Entity._fields, entity, strict=True):
        if name is not None:
            title = part.replace("_", " ")
            parts.append(f"every other {title}" if name is DEFAULT else f"{title} {name!r}")
    return " of ".join(reversed(parts)) if len(parts) > 1 else "".join(parts)


def _defaults(limits: Mapping[Entity, Mapping[str, float]]) -> dict[Entity, dict[str, float]]:
    """Return the limits of the default entities of one part, which overrides inherit key by key.

    Keys of users that depend on the client id as well are left out.
    """
    found = {
        entity: dict(limits.get(entity, {}))
        for entity in (Entity(client_id=DEFAULT), Entity(user=DEFAULT), Entity(topic=DEFAULT))
    }
    for entity, values in limits.items():
        if entity.user is DEFAULT and entity.client_id is not None:
            for key in values:
                found[Entity(user=DEFAULT)].pop(key, None)
    return found


def _inherited(
    entity: Entity, values: Mapping[str, float], defaults: Mapping[Entity, Mapping[str, float]]
) -> str:
    """Return text with the limits that an entity inherits from the default one of its kind; "" if it inherits none."""
    if any(name is not None for name in entity[4:]):  # a group, or an entry with times
        return ""
    user, client_id, ip, topic = (None if name is None else DEFAULT for name in entity[:4])
    default = Entity(user, client_id, ip, topic)
    left = {key: value for key, value in defaults.get(default, {}).items() if key not in values}
    return f"; as {_entity(default)} {_limits(left)}" if left and entity != default else ""


def _limits(values: Mapping[str, float]) -> str:
    return ", ".join(
        f"{key} {write_bytes(int(value)) if key in _BYTES else f'{value:g}'}" for key, value in values.items()
    )


_BYTES: Final = (*BYTE_RATES, *CEILINGS.values())


# ----------------------------------------------------------------------------------------------------
# `[fleet]`, and its members if one of them runs. One member is asked, by default the one that this configuration is
# for. It reports the differences between members that it has seen for 5 s; the configuration is compared with it.


_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Of the program, not of a configuration.
_NOT_CONFIGURED: Final = ("version",)


class Members(NamedTuple):
    """What one member of the fleet, which was asked at its admin port, has reported about all members.

    Args:
        asked: the admin port; "" if none is known.
        problem: why there is no report; "" if there is one.
        names: the names of all members.
        differences: a sentence for each difference between members, and between this configuration and the member.
    """

    asked: str
    problem: str
    names: Sequence[str] = ()
    differences: Sequence[str] = ()


def fleet(options: FleetOptions) -> Iterator[str]:
    """Yield lines on the fleet, whose members share quotas; none if the configuration has no fleet."""
    if not options.configured:
        return
    where = "this process" if options.holds_by_name else str(options.holder)
    if options.holder is None:
        where = f"chosen by the group {options.group}"
    yield f"fleet: {options.own_name!r}, one of at most {options.members_max} members; the holder is {where}"
    if options.cluster is not None:
        brokers = ", ".join(map(str, options.bootstrap))
        yield f"  its own cluster, for the group and Sluice's topics: {brokers}"
    if options.may_hold:
        signed = "signed" if options.secret_file else "not signed"
        if options.tls is not None:
            signed += f", TLS, members' certificates {options.tls.client_auth}"
        yield f"  members reach it at {options.own_address}: {options.bind}, {signed}"


def check_secret(options: FleetOptions, *, may_be_missing: bool) -> None:
    """Check that the fleet's secret can be used.

    Args:
        may_be_missing: whether a missing file is no error, since `serve` may run on another machine.

    Raises:
        ConfigError: it cannot be read, or is too short.
    """
    if options.secret_file is None:
        return
    # Imported late: most configurations have no fleet.
    from proxy.fleet.secret import KEY, secret_problem

    try:
        read_secret(options.secret_file, KEY)
    except OSError as error:
        if may_be_missing and isinstance(error, FileNotFoundError):
            return
        problem = secret_problem(options.secret_file, error).removeprefix(f"{KEY}: ")
        raise ConfigError(KEY, problem) from error


def fleet_document(options: FleetOptions) -> Mapping[str, object] | None:
    """Return the settings of the fleet as values of JSON; None without a fleet."""
    if not options.configured:
        return None
    return {
        "name": options.own_name,
        "members_max": options.members_max,
        "holder": None if options.holder is None else str(options.holder),
        "group": options.group if options.holder is None else None,
        "bootstrap": [str(address) for address in options.bootstrap],
        "holds": options.holds_by_name,
        "cut_off": options.cut_off,
    }


def ask_members(
    config: Config, definitions: Definitions, admin: str | None, access: AdminAccess, own_name: str
) -> Members:
    """Read `/fleet` from one member, and compare its settings and quotas with this configuration, which has a fleet.

    Args:
        definitions: the quotas of this configuration.
        admin: the member's admin port; None for the one in this configuration.
        access: what is trusted and sent there.
        own_name: what this configuration is called in sentences about differences.
    """
    asked = admin or _admin_of(config.admin)
    if not asked:
        return Members("", "this configuration has no admin port; --admin names a member's")
    try:
        page = read_document(asked, "/fleet", access)
    except ServerError as error:
        return Members(asked, str(error))
    if not page.get("member"):
        return Members(asked, f"{asked} is no member of a fleet")
    names = [member["name"] for member in page["members"]]
    own = _differences(config, definitions, own_name, page)
    return Members(asked, "", names, [*page["disagreements"], *own])


def compared(members: Members | None) -> Iterator[str]:
    """Yield the lines about members for people: their names, and each difference between them."""
    if members is None:
        return
    if members.problem:
        yield f"warning: the members of the fleet were not compared: {members.problem}"
        return
    yield f"members of the fleet, by {members.asked}: {', '.join(members.names)}"
    yield from (f"  differs: {sentence}" for sentence in members.differences)


def members_document(members: Members) -> Mapping[str, object]:
    """Return `members` as values of JSON."""
    return {**members._asdict(), "names": list(members.names), "differences": list(members.differences)}


def _admin_of(options: AdminOptions) -> str:
    """Return the address of an admin port on this machine, a URL with TLS; "" without such a port."""
    if options.bind is None:
        return ""
    address = str(options.bind._replace(host=_LOOPBACK_OF.get(options.bind.host, options.bind.host)))
    return address if options.tls is None else f"https://{address}"


def _differences(config: Config, definitions: Definitions, own_name: str, page: Document) -> Sequence[str]:
    """Return a sentence for each difference between this configuration and the member that was asked."""
    # Imported late: most configurations have no fleet.
    from proxy.fleet.facts import DIGEST, differences, facts_of

    theirs = next((member for member in page["members"] if member["run"] == page["run"]), None)
    if theirs is None:  # it has no lease yet
        return ()
    definitions.keep_digest()
    own = facts_of(
        config.quotas, config.reassignment, config.fleet.members_max, engine_options(config), definitions
    )
    left_out = _NOT_CONFIGURED if config.quotas.store == "file" else (*_NOT_CONFIGURED, DIGEST)
    facts = {name: value for name, value in own.items() if name not in left_out}
    return list(differences([(own_name, facts), (theirs["name"], theirs)]).values())


# ----------------------------------------------------------------------------------------------------
# `--format json`: one document, with names and units of the configuration. Its keys are config, problem ("" without an
# error), warnings, listeners, quotas, replication, fleet, reassignment, capture, admin and data_path (compiled or
# interpreted), and without `--offline` also cluster and the members of a fleet. If the configuration cannot be read, it
# has the first two only.


ENTITIES_SHOWN_MAX: Final = 10_000
_LISTENER_KEYS: Final = (
    "name",
    "kind",
    "bind",
    "broker_host",
    "unknown_names",
    "bootstrap_port",
    "first_broker_port",
    "broker_id_max",
    "advertised_host",
    "advertised_bootstrap_port",
    "advertised_first_broker_port",
)
_REPLICATION_KEYS: Final = ("policy", "throttled", "leader_rate", "follower_rate")
_CAPTURE_KEYS: Final = ("sample", "frames", "rotate_bytes", "rotate_seconds", "max_bytes")


def describe(config: Config, limits: Mapping[Entity, Mapping[str, float]]) -> dict[str, object]:
    """Return the JSON document of `sluice check`; `limits` are the limits in force, by entity and quota key."""
    settings, capture = config.quotas, config.capture
    return {
        "listeners": [_listener(listener) for listener in config.listeners],
        "quotas": {
            **_picked(settings, ("policy", "mode", "scope", "store")),
            "source": settings.store,  # its old name
            "file": None if settings.file is None else str(settings.file),
            "entities": len(limits),
            "limits": [
                {**as_table(entity), "quotas": dict(values)}
                for entity, values in list(limits.items())[:ENTITIES_SHOWN_MAX]
            ],
        },
        "replication": _picked(config.replication, _REPLICATION_KEYS) if config.replicates else None,
        "fleet": fleet_document(config.fleet),
        "reassignment": {"mode": config.reassignment.mode, "journal": config.reassignment.journal or None},
        "capture": None
        if capture.directory is None
        else {"directory": str(capture.directory), **_picked(capture, _CAPTURE_KEYS)},
        "admin": None if config.admin.bind is None else str(config.admin.bind),
        "data_path": compiled.form(),
    }


def _listener(listener: ListenerOptions) -> dict[str, object]:
    return {
        **_picked(listener, _LISTENER_KEYS),
        "bootstrap_port": None if listener.replicates else listener.bootstrap_port,
        "upstreams": {str(broker): str(address) for broker, address in listener.upstreams.items()},
        "tls": None if listener.tls is None else {"client_auth": listener.tls.client_auth},
        "proxy_protocol_sources": list(map(str, listener.proxy_protocol_sources)),
    }


def _picked(options: Options, keys: Sequence[str]) -> dict[str, object]:
    return {key: getattr(options, key) for key in keys}
