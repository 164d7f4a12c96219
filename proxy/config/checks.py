"""Checks of several keys together, and everything that is valid and probably a mistake.

A configuration that cannot work is a ConfigError. One that probably does something else than was meant has warnings,
one line each, which the caller logs: keys without effect, names and numbers of quotas, directories that cannot be
written to. What the keys of one table decide alone is in its `settled` (`proxy.config.options`).
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from commandline.amounts import count
from proxy.config.options import (
    ID,
    LOOPBACK_HOSTS,
    OLD_SCOPE,
    SASL_NAMED,
    SASL_WITH_SECRET,
    WILDCARDS,
    WITHOUT_GROUPS,
    AdminOptions,
    CaptureOptions,
    ClusterOptions,
    Config,
    ListenerOptions,
    QuotaSettings,
    ReplicationSettings,
    broker_in,
)
from proxy.config.schema import PORT_MAX, Address
from proxy.system.errors import ConfigError
from proxy.system.hosts import is_loopback
from quotas.definitions.alterations import text_of
from quotas.definitions.amounts import parse_amount
from quotas.definitions.entities import Entity, ip_name
from quotas.definitions.kinds import BYTE_RATES, REQUEST_PERCENTAGE, TERM_KEYS
from quotas.replication.replication_quotas import parse_replicas

EPHEMERAL_FIRST: Final = 32768  # Linux's default ip_local_port_range begins here
_EPHEMERAL: Final = (
    f"is in the ephemeral range, which begins at {EPHEMERAL_FIRST}: "
    "an outgoing connection may use it when Sluice starts"
)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_POLICY_IS_OPEN: Final = (
    'quotas.policy: is not in the file, and the default is "schedule" now; it was "kip13" in earlier releases. Write '
    'policy = "schedule" under [quotas], or policy = "kip13" for Kafka\'s own arithmetic as before'
)
_PATTERN: Final = "*"
_TYPE: Final = "User:"
_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)
_NAMES: Final = Entity._fields[:4]  # those that are compared with what clients say of themselves
_BRACKETS: Final = "<>\"' "
_EVERY_OTHER: Final = 'every name without an entry of its own is "<default>"'
_BYTES_MIN: Final = 1000  # bytes/s: the headers of a client's requests alone are about as much
_WAIT_SECONDS_MAX: Final = 300.0  # more is probably meant as milliseconds


def check(config: Config, written: Mapping[str, object]) -> list[str]:
    """Check that the values of a configuration, each of which is valid by itself, work together.

    Args:
        config: the whole configuration.
        written: the keys of `[quotas]` that were written, without defaults.

    Returns: warnings, one line each.

    Raises:
        ConfigError: the configuration cannot work.
    """
    _check_login("cluster", config.cluster)
    _check_names(config)
    for index, listener in enumerate(config.listeners):
        _check_listener(f"listeners[{index}]", listener)
    _check_fleet(config)
    _check_group(config)
    _check_burst(config.quotas)
    bound = list(bound_ports(config))
    _check_overlaps(bound, "is bound")
    _check_overlaps(list(_advertised(config)), "is advertised")
    _check_loops(config, bound)
    _check_store(config)
    _check_journal(config)
    _check_capture(config.capture)
    return [
        *(f"{ports.path}: port {ports} {_EPHEMERAL}" for ports in bound if ports.last >= EPHEMERAL_FIRST),
        *_store_warnings(config, written),
        *_replication_warnings(config.replication),
        *_fleet_warnings(config),
        *_admin_warnings(config.admin),
        *_name_warnings(config),
        *_without_effect(config),
        *_quota_warnings(config.quotas),
        *_policy_warnings(config, written),
    ]


# ----------------------------------------------------------------------------------------------------
# What cannot work


def _check_login(path: str, cluster: ClusterOptions) -> None:
    """Check that mechanism, user name and secret of `[cluster]` or `[fleet.cluster]` are complete."""
    mechanism, has_secret = cluster.sasl_mechanism, bool(cluster.password or cluster.password_file)
    if not mechanism and (cluster.username or has_secret):
        raise ConfigError(f"{path}.sasl_mechanism", "is needed with a username and password")
    for key, is_missing in (
        ("username", mechanism in SASL_NAMED and not cluster.username),
        ("password_file", mechanism in SASL_WITH_SECRET and not has_secret),
        ("tls", mechanism == WITHOUT_GROUPS and cluster.tls is None),
    ):
        if is_missing:
            raise ConfigError(f"{path}.{key}", f"is needed with {mechanism}")


def _check_names(config: Config) -> None:
    seen: set[str] = set()
    for index, listener in enumerate(config.listeners):
        if listener.name in seen:
            raise ConfigError(
                f"listeners[{index}].name", "each listener must have its own name", listener.name
            )
        seen.add(listener.name)


def _check_listener(path: str, listener: ListenerOptions) -> None:
    """Check that a listener's brokers have ports, and that the sources of PROXY headers, which name the client, are
    known.
    """
    for key, first in (
        ("first_broker_port", listener.first_broker_port),
        ("advertised_first_broker_port", listener.advertised_first_broker_port),
    ):
        last = first + listener.broker_id_max
        if last > PORT_MAX:
            problem = (
                f"with broker_id_max = {listener.broker_id_max} the last port is {last}, above {PORT_MAX}"
            )
            raise ConfigError(f"{path}.{key}", problem, first)
    for broker_id in listener.upstreams:
        if broker_id > listener.broker_id_max:
            problem = f"is above broker_id_max = {listener.broker_id_max}, and has no port"
            raise ConfigError(f"{path}.upstreams.{broker_id}", problem, broker_id)
    if listener.proxy_protocol and not listener.proxy_protocol_sources:
        raise ConfigError(
            f"{path}.proxy_protocol_sources", "must be the networks whose PROXY headers are trusted"
        )
    if listener.proxy_protocol_sources and not listener.proxy_protocol:
        raise ConfigError(f"{path}.proxy_protocol_sources", "has no effect without proxy_protocol = true")
    if listener.replicates and not listener.sidecar:
        problem = "must be the addresses that the brokers listen on: they advertise Sluice to each other"
        raise ConfigError(f"{path}.upstreams", problem)


def _check_fleet(config: Config) -> None:
    fleet = config.fleet
    if fleet.cluster is not None:
        _check_login("fleet.cluster", fleet.cluster)
    if not fleet.configured:
        for name in ("name", "advertised", "tls"):  # the secret also signs records of topics
            if getattr(fleet, name):
                raise ConfigError("fleet.bind", f"is needed with fleet.{name}, or fleet.holder")
        return
    if fleet.parts > 1 and fleet.holder is not None:
        raise ConfigError(
            "fleet.parts", "must be 1 with fleet.holder: one member leases the shares of all keys"
        )
    if fleet.advertised is not None and fleet.bind is None:
        raise ConfigError("fleet.bind", "is needed with fleet.advertised")
    if fleet.may_hold and fleet.tls is not None and fleet.tls.cert_file is None:
        raise ConfigError(
            "fleet.tls.cert_file", "must name the certificate of this member's port, a PEM file"
        )


def _check_group(config: Config) -> None:
    """Check that a fleet's group does not use a broker behind Sluice.

    A group's brokers are reached at the addresses that they advertise, so these must not be Sluice's.
    """
    if not config.fleet.has_group:
        return
    if config.fleet_cluster.sasl_mechanism == WITHOUT_GROUPS:
        problem = f"is needed with {WITHOUT_GROUPS}, with which no group can be joined"
        raise ConfigError("fleet.holder", problem)
    if config.bootstrap_behind is not None:
        problem = (
            "with a group that chooses the fleet's holder it must name a listener of the brokers that is not "
            "behind Sluice; or name the holder: fleet.holder"
        )
        raise ConfigError(config.fleet_bootstrap_key, problem, str(config.bootstrap_behind))


def _check_burst(quotas: QuotaSettings) -> None:
    if quotas.partition_mutations_burst is not None and quotas.partition_mutations_rate is None:
        problem = "needs partition_mutations_rate: without it nothing is limited"
        raise ConfigError("quotas.partition_mutations_burst", problem, quotas.partition_mutations_burst)


def _check_capture(capture: CaptureOptions) -> None:
    if capture.max_bytes < capture.rotate_bytes:
        problem = f"must be at least rotate_bytes, {capture.rotate_bytes}: one file can be that large"
        raise ConfigError("capture.max_bytes", problem, capture.max_bytes)


def _check_store(config: Config) -> None:
    """Check that the configuration has what `[quotas] store = "topic"` needs."""
    quotas = config.quotas
    if quotas.store != "topic":
        return
    if quotas.file is not None:
        problem = (
            'quotas are in a topic (store = "topic"): leave it out, and put the file\'s quotas there once with '
            "sluice quotas apply FILE"
        )
        raise ConfigError("quotas.file", problem, str(quotas.file))
    for key, name in (("topic", quotas.topic), ("audit_topic", quotas.audit_topic)):
        if name:
            _check_topic_name(f"quotas.{key}", name)
    if quotas.topic == quotas.audit_topic:
        raise ConfigError("quotas.audit_topic", "must be another topic than quotas.topic", quotas.audit_topic)
    _check_topic_cluster(config, '[quotas] store = "topic"')


def _check_topic_name(path: str, name: str) -> None:
    if _TOPIC.fullmatch(name) is None or name in (".", ".."):
        raise ConfigError(path, "is not a valid name of a topic", name)


def _check_topic_cluster(config: Config, setting: str) -> None:
    """Check that Sluice can read and write a topic of its own.

    Args:
        setting: what needs the topic, as it is written.
    """
    if config.fleet_cluster.sasl_mechanism == WITHOUT_GROUPS:
        section = "fleet.cluster" if config.fleet.cluster else "cluster"
        raise ConfigError(f"{section}.sasl_mechanism", f"{WITHOUT_GROUPS} cannot be used with {setting}")
    if config.bootstrap_behind is not None:
        problem = (
            f"with {setting} it must name a listener of the brokers that is not behind Sluice: "
            "the topic's brokers are reached at the addresses that they advertise there"
        )
        raise ConfigError(config.fleet_bootstrap_key, problem, str(config.bootstrap_behind))


def _check_journal(config: Config) -> None:
    """Check that the configuration has what `[reassignment] journal = "topic"` needs."""
    settings, quotas, fleet = config.reassignment, config.quotas, config.fleet
    if fleet.secret_file and not fleet.configured and quotas.store != "topic" and not settings.in_topic:
        raise ConfigError("fleet.bind", "is needed with fleet.secret_file, or fleet.holder")
    if not settings.in_topic:
        return
    topic, setting = settings.journal_topic, '[reassignment] journal = "topic"'
    _check_topic_name("reassignment.journal_topic", topic)
    others = {"fleet.group": fleet.group} if fleet.has_group else {}
    if quotas.store == "topic":
        others |= {"quotas.topic": quotas.topic, "quotas.audit_topic": quotas.audit_topic}
    for path, name in others.items():
        if topic == name:
            raise ConfigError("reassignment.journal_topic", f"must be another topic than {path}", topic)
    if fleet.configured and fleet.secret_file is None:
        problem = f"is needed with {setting}: members have reassignments carried out by the holder"
        raise ConfigError("fleet.secret_file", problem)
    _check_topic_cluster(config, setting)


# ----------------------------------------------------------------------------------------------------
# Ports


class PortRange(NamedTuple):
    """The ports (`first` to `last`) that one key of the configuration (`path`) claims on one host."""

    host: str
    first: int
    last: int
    path: str

    def overlaps(self, other: "PortRange") -> bool:
        """Whether both claim a port in common; a wildcard address counts as every host."""
        if self.first > other.last or other.first > self.last:
            return False
        if self.host in WILDCARDS or other.host in WILDCARDS:
            return True
        return bool(shared_name(self.host, other.host))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def shared_name(one: str, other: str) -> str:
    """Return a name that both hosts mean, "" if there is none; a `broker_host` means the names of all brokers.

    >>> shared_name("b{id}.example.org", "b1{id}.example.org"), shared_name("b{id}.example.org", "example.org")
    ('b11.example.org', '')
    """
    names = [host for host in (one, other) if ID not in host]
    for host, second in (one, other), (other, one):
        start, _, end = host.partition(ID)
        # What the other has before its id, and this one has not, this one can have as its id, or as the start of it.
        more = second.partition(ID)[0].removeprefix(start)
        ids = ("0", "1", f"{more}1", *(more[:length] for length in range(1, len(more) + 1)))
        names += [f"{start}{broker}{end}" for broker in ids]
    return next((name for name in names if _means(one, name) and _means(other, name)), "")


def _means(host: str, name: str) -> bool:
    return host == name if ID not in host else broker_in(host, name) is not None


def bound_ports(config: Config) -> Iterator[PortRange]:
    """Yield the ports that a process with this configuration binds, a range for each key."""
    for index, listener in enumerate(config.listeners):
        path, bind, first = f"listeners[{index}]", listener.bind, listener.first_broker_port
        if not listener.replicates:  # brokers need no bootstrap port
            yield PortRange(bind, listener.bootstrap_port, listener.bootstrap_port, f"{path}.bootstrap_port")
        if not (listener.sidecar or listener.by_name):
            yield PortRange(bind, first, first + listener.broker_id_max, f"{path}.first_broker_port")
        for broker_id in listener.upstreams:
            yield PortRange(bind, first + broker_id, first + broker_id, f"{path}.upstreams.{broker_id}")
    if config.admin.bind is not None:
        yield PortRange(config.admin.bind.host, config.admin.bind.port, config.admin.bind.port, "admin.bind")
    fleet = config.fleet.bind if config.fleet.may_hold else None
    if fleet is not None:
        yield PortRange(fleet.host, fleet.port, fleet.port, "fleet.bind")


def _advertised(config: Config) -> Iterator[PortRange]:
    for index, listener in enumerate(config.listeners):
        if listener.sidecar:  # the brokers advertise, not Sluice
            continue
        path, host = f"listeners[{index}]", listener.advertised_host.lower().removesuffix(".")
        port, first = listener.advertised_bootstrap_port, listener.advertised_first_broker_port
        yield PortRange(host, port, port, f"{path}.advertised_bootstrap_port")
        if listener.by_name:
            yield PortRange(listener.broker_host, port, port, f"{path}.broker_host")
            continue
        yield PortRange(host, first, first + listener.broker_id_max, f"{path}.advertised_first_broker_port")


def _check_overlaps(ranges: list[PortRange], verb: str) -> None:
    for index, later in enumerate(ranges):
        for earlier in ranges[:index]:
            if not later.overlaps(earlier):
                continue
            if ID in later.host + earlier.host:
                name = f"{shared_name(later.host, earlier.host)}:{max(later.first, earlier.first)}"
                problem = f"{name} {verb} already by {earlier.path}: choose other names, or another port"
                raise ConfigError(later.path, problem)
            problem = f"port {later} {verb} already by {earlier.path} ({earlier})"
            raise ConfigError(later.path, problem, later.first)


def _check_loops(config: Config, bound: list[PortRange]) -> None:
    """Check that no broker's address is one of Sluice's own ports: it would connect to itself endlessly."""
    targets: list[tuple[str, Address]] = [
        ("cluster.bootstrap", address) for address in config.cluster.bootstrap
    ]
    targets += [("fleet.bootstrap", address) for address in config.fleet.bootstrap]
    for index, listener in enumerate(config.listeners):
        targets += [
            (f"listeners[{index}].upstreams.{n}", address) for n, address in listener.upstreams.items()
        ]
    for path, address in targets:
        for ports in bound:
            if ports.first <= address.port <= ports.last and _reaches(address.host, ports.host):
                raise ConfigError(path, f"is the address of Sluice itself: {ports.path}", str(address))


def _reaches(host: str, bind: str) -> bool:
    return host == bind or (host in LOOPBACK_HOSTS and bind in (*WILDCARDS, *LOOPBACK_HOSTS))


# ----------------------------------------------------------------------------------------------------
# What is probably a mistake: one warning for each


def _store_warnings(config: Config, written: Mapping[str, object]) -> Iterator[str]:
    quotas = config.quotas
    if written.get("scope") == OLD_SCOPE:
        yield f'quotas.scope: "{OLD_SCOPE}" is now called "cluster"'
    if config.fleet.configured and quotas.store == "file" and quotas.alter_principals:
        yield (
            'quotas.alter_principals: has no effect with [fleet] and store = "file": a change through one member would '
            'not reach the others; store = "topic" is one truth for all'
        )
    if quotas.store == "cluster" and written.get("file"):
        yield 'quotas.file: has no effect with store = "cluster"'
    if quotas.store == "cluster" and quotas.mode == "enforce":
        yield 'quotas.mode: clients are throttled twice: with store = "cluster" the brokers enforce the same quotas too'


def _replication_warnings(settings: ReplicationSettings) -> Iterator[str]:
    for name in ("leader_throttled_replicas", "follower_throttled_replicas"):
        lists = getattr(settings, name)
        for topic, text in lists.items():
            for problem in parse_replicas(text)[1]:
                yield f"replication.{name}.{topic}: {problem}; the rest of the list is used"
        if lists and settings.throttled != "file":
            yield f'replication.{name}: has no effect with throttled = "{settings.throttled}"'
    for name in ("leader_rate", "follower_rate"):
        rate = getattr(settings, name)
        if rate is not None and settings.throttled in ("off", "cluster"):
            yield f'replication.{name}: has no effect with throttled = "{settings.throttled}"'
        if rate is not None and (problem := _value_problem("producer_byte_rate", rate)):
            yield f"replication.{name}: {rate} {problem}"
        yield from _ceiling_warnings(settings, name, rate, getattr(settings, f"{name}_ceiling"))


def _ceiling_warnings(
    settings: ReplicationSettings, name: str, rate: float | None, ceiling: float | None
) -> Iterator[str]:
    if ceiling is None:
        return
    problem = ""
    if settings.throttled == "cluster":
        problem = 'has no effect with throttled = "cluster": the brokers keep to the rate themselves'
    elif settings.throttled == "off":
        problem = 'has no effect with throttled = "off"'
    elif settings.policy != "schedule":
        problem = f'has no effect with policy = "{settings.policy}": only a schedule can lend what is left'
    elif rate is None:
        problem = f"has no effect without {name}: replication is not throttled"
    elif ceiling < rate:
        problem = f"{ceiling} is below {name}, which holds"
    if problem:
        yield f"replication.{name}_ceiling: {problem}"


def _fleet_warnings(config: Config) -> Iterator[str]:
    fleet = config.fleet
    if fleet.configured and config.replicates and config.replication.policy == "kip73":
        yield (
            "fleet: with replication.policy kip73 shares hold on an average of all windows only, and a share"
            ' that grows brings what its windows have room for; "schedule" is exact'
        )
    if fleet.has_group and fleet.secret_file is None:
        yield (
            "fleet.group: every client that may join it can be the holder, and set what all members may use; "
            "fleet.secret_file prevents that (sluice fleet secret makes one)"
        )
    if not fleet.may_hold or fleet.bind is None:
        return
    proven = fleet.tls is not None and fleet.tls.client_auth == "required"
    if fleet.secret_file is None and not proven and fleet.bind.host not in LOOPBACK_HOSTS:
        yield "fleet.bind: every host that reaches it may take shares; fleet.secret_file prevents that"


def _admin_warnings(admin: AdminOptions) -> Iterator[str]:
    """Yield a warning if hosts other than this one reach the admin port, and it is not protected."""
    if admin.bind is None or is_loopback(admin.bind.host):
        return
    if admin.tls is None and admin.token_file is None:
        yield (
            "admin.bind: every host that reaches it may read the names and traffic of all clients; [admin.tls] with "
            "admin.token_file or client certificates prevents that"
        )
    elif admin.tls is None:
        yield "admin.token_file: tokens pass the network as plain text without [admin.tls]"
    elif admin.token_file is None and admin.tls.client_auth != "required":
        yield (
            "admin.tls: encrypts, but every host that reaches the port may read it; admin.token_file, or "
            'client_ca_file with client_auth = "required", prevents that'
        )


def _name_warnings(config: Config) -> Iterator[str]:
    """Yield a warning for each name that Java's clients leave out of a TLS hello, where it has to be."""
    for index, listener in enumerate(config.listeners):
        for key in ("advertised_host", "broker_host") if listener.by_name else ():
            name = getattr(listener, key)
            problem = "has no dot" if "." not in name else "has an underscore" if "_" in name else ""
            if problem:
                yield f"listeners[{index}].{key}: {name!r} {problem}: Java's clients send no such name in a hello"


def _without_effect(config: Config) -> Iterator[str]:
    """Yield warnings about keys without effect, or with another effect than their name suggests."""
    shares = config.fleet.configured and bool(config.replication.terms())  # the holder divides by these
    if not config.replicates and config.replication != ReplicationSettings() and not shares:
        yield 'replication: has no effect without a listener of kind "replication"'
    beside = any(listener.sidecar and not listener.replicates for listener in config.listeners)
    if config.replicates and beside and config.replication.throttled == "cluster":
        yield (
            'replication.throttled: with "cluster" and a sidecar of clients in the same process, only the rates of its '
            "own broker are known, so followers at other brokers are not limited: use a process of its own for the "
            "replication listener"
        )
    clients = [listener for listener in config.listeners if not listener.replicates]
    before = {broker for listener in clients for broker in listener.upstreams}
    alone = all(listener.sidecar for listener in clients) and len(before) == 1 and not config.fleet.configured
    if config.quotas.scope == "cluster" and alone:
        yield (
            'quotas.scope: "cluster" without [fleet] is the one broker behind this sidecar: each sidecar gives a '
            "client its whole budget"
        )
    if config.fleet.cluster is not None and not config.fleet.has_group and not config.keeps_topics:
        yield 'fleet.bootstrap: has no effect without a group (fleet.bind and no fleet.holder) or store = "topic"'
    if config.reassignment.journal and not config.reassignment.batches:
        yield 'reassignment.journal: has no effect with mode = "pass"'
    if config.capture.directory is None and config.capture != CaptureOptions():
        yield "capture: nothing is captured without capture.directory"


def _policy_warnings(config: Config, written: Mapping[str, object]) -> Iterator[str]:
    """Yield warnings where a file leaves open by which policy clients have quotas: its default was another one."""
    gives_quotas = bool(written or config.source.quota_text)
    for_clients = any(not listener.replicates for listener in config.listeners)
    if config.source.path is not None and "policy" not in written and gives_quotas and for_clients:
        yield _POLICY_IS_OPEN
    hold = written.get("hold_seconds_max")
    if config.quotas.policy == "kip13" and hold is not None and parse_amount(hold):
        yield "quotas.hold_seconds_max: has no effect with policy kip13, which never holds a request back"


def _quota_warnings(quotas: QuotaSettings) -> Iterator[str]:
    for name in ("hold_seconds_max", "mute_seconds_max"):
        value = getattr(quotas, name)
        if value > _WAIT_SECONDS_MAX:
            yield f"quotas.{name}: counts seconds: {value:g} are {value / 60:.0f} minutes; no client waits so long"
    if quotas.hold_seconds_max > quotas.mute_seconds_max:
        yield (
            f"quotas.hold_seconds_max: {quotas.hold_seconds_max:g} s is longer than quotas.mute_seconds_max, "
            f"{quotas.mute_seconds_max:g} s: both have to stay below the clients' request.timeout.ms, so clients "
            "have to bear the longer one"
        )
    yield from _principals("alter_principals", quotas.alter_principals)
    yield from _principals("describe_principals", quotas.describe_principals)
    for side in ("producer", "consumer"):
        yield from _static(f"{side}_default", {"": getattr(quotas, f"{side}_default")})
        yield from _static(f"{side}_override", getattr(quotas, f"{side}_override"))


def terms_problem(quotas: QuotaSettings, entity: Entity, key: str) -> str:
    """Return why a capacity, or a term of its use, cannot hold with these settings; "" if it can.

    Args:
        entity: the entity that has it.
        key: its quota key; other keys are right with all settings.
    """
    if entity.capacity is None and key not in TERM_KEYS:
        return ""
    what = f"[[capacity]] of {key}" if entity.capacity is not None else f"{key} of {text_of(entity)}"
    if quotas.policy != "schedule":
        return f'{what} needs quotas.policy = "schedule", not "{quotas.policy}": only a schedule can lend what is left'
    if entity.capacity == "broker" and quotas.scope != "broker":
        return (
            f'{what} has scope = "broker" and needs quotas.scope = "broker", not "{quotas.scope}": requests are '
            'counted over all brokers together; state a capacity with scope = "cluster"'
        )
    return ""


def limit_warnings(entity: Entity, values: Mapping[str, float]) -> Iterator[str]:
    """Yield warnings about one `[[quota]]` table: names and limits that probably mean something else."""
    for part, name in zip(_NAMES, entity, strict=False):
        if isinstance(name, str) and entity.group is None:
            problem = _name_problem(part, name)
            if problem:
                yield f"quota of {part.replace('_', ' ')} {name!r}{problem}"
    for key, value in values.items():
        problem = _value_problem(key, value)
        if problem:
            yield f"quota of {text_of(entity).replace('client-id', 'client id')}: {key} = {value:g} {problem}"


def _name_problem(part: str, name: str) -> str:
    """Return what is probably wrong with a name, as the text that follows it in a sentence; "" if nothing is."""
    if part == "ip":
        return "" if ip_name(name) else " has no effect: it is no IP address"
    if _PLAIN.fullmatch(name) and name.lower() != "default":  # so are nearly all
        return ""
    if _is_pattern(name):
        group = (
            ", or a [[group]] of all that begin so" if part in ("user", "client_id") and _begins(name) else ""
        )
        return f": {_literal(name)}{group}"
    if part == "user" and name.startswith(_TYPE):
        return f": {_typed(name)}"
    if name.strip(_BRACKETS).lower() == "default":
        return f": it is this name letter by letter; {_EVERY_OTHER}"
    if name != name.strip():
        return f": a blank at an end is a part of the name; without it: {name.strip()!r}"
    if part in ("client_id", "topic") and "," in name:
        return ": a comma is a part of the name; several names are several [[quota]] tables"
    return ""


def _value_problem(key: str, value: float) -> str:
    """Return what is probably wrong with a limit, as the end of a sentence; "" if nothing is."""
    if key in BYTE_RATES and value < _BYTES_MIN:
        return (
            f"is {count(round(value), 'byte')} a second, less than one request: "
            f'with a unit it is "{value:g}k" or "{value:g}M"'
        )
    if key == REQUEST_PERCENTAGE and value < 1:
        return f"is in percent, and of one thread: a share of {value:g} is {value * 100:g}"
    return ""


def _principals(key: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name.startswith(_TYPE):
            yield f"quotas.{key}: {name!r}: {_typed(name)}"
        elif name != _PATTERN and _is_pattern(name):
            yield f"quotas.{key}: {name!r}: {_literal(name)}"


def _static(key: str, rates: Mapping[str, int | None]) -> Iterator[str]:
    """Yield warnings about a static setting of KIP-13: rates by client id, "" for the default."""
    for name, rate in rates.items():
        problem = _name_problem("client_id", name)
        if problem:
            yield f"quotas.{key}: {name!r}{problem}"
        problem = "" if rate is None else _value_problem("producer_byte_rate", rate)
        if problem:
            yield f"quotas.{key}: {name + ':' if name else ''}{rate} {problem}"


def _is_pattern(name: str) -> bool:
    return _PATTERN in name or "?" in name or name.startswith("^")


def _begins(name: str) -> bool:
    """Whether a group could have this pattern: a beginning of names with * behind it."""
    return len(name) > 1 and name.endswith(_PATTERN) and not _is_pattern(name[:-1])


def _literal(name: str) -> str:
    meant = f"; {_EVERY_OTHER}" if name == _PATTERN else ": write each name"
    return f"there are no patterns, as in Kafka: it is this name letter by letter{meant}"


def _typed(name: str) -> str:
    return f"users are named without their principal's type: {name.removeprefix(_TYPE)!r}"


# ----------------------------------------------------------------------------------------------------
# Configured paths that this process cannot write to: one warning for each.
#
# They are checked at start and by `sluice check`. Nothing is created or written.


_STATE_IS_LOST: Final = (
    "the broker map is not kept, so a restarted Sluice serves brokers' ports only once it has reached the cluster, "
    "and enforces quotas even if that was switched off"
)
_NOT_ALTERED: Final = "kafka-configs cannot alter quotas, since the file is replaced in its directory"


def unwritable(config: Config) -> Iterator[str]:
    """Yield a warning for each configured path that cannot be written to, with what does not work then."""
    quotas, journal = config.quotas.file, config.reassignment.directory
    may_alter = config.quotas.alter_principals or any(map(config.trusts, config.listeners))
    altered = quotas.parent if quotas is not None and may_alter and not config.fleet.configured else None
    for key, directory, consequence in (
        ("state.directory", config.state.directory, _STATE_IS_LOST),
        ("quotas.file", altered, _NOT_ALTERED),
        ("capture.directory", config.capture.directory, "nothing can be captured"),
        (
            "reassignment.journal",
            journal if config.reassignment.batches else None,
            "reassignments are refused",
        ),
    ):
        if directory is not None and (problem := _problem(directory)):
            yield f"{key}: {problem}: {consequence}"


def _problem(directory: Path) -> str:
    """Return why files in a directory, or the directory itself, cannot be created; "" if they can."""
    place = directory
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is no directory"
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        return f"{place} cannot be written by user id {os.geteuid()}"
    return ""
