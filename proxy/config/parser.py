"""TOML tables -> Config. Pure: no file is read here, and no name is resolved.

Every key belongs to a field. An unknown key is an error with the most similar key; for a key of Kafka's clients that is
not supported here, the error says why. Values are read one by one, and checked against each other at the end
(`proxy.config.checks`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Final, TypeVar

from proxy.config.capture_options import CaptureOptions
from proxy.config.checks import check
from proxy.config.cluster_options import UNSUPPORTED_KEYS as UNSUPPORTED_CLUSTER_KEYS
from proxy.config.cluster_options import ClusterOptions
from proxy.config.effects import without_effect
from proxy.config.environment import Tables, merge, override, variable_of
from proxy.config.fleet_options import FleetOptions
from proxy.config.journal_topic import check_journal
from proxy.config.lease_options import LeaseOptions
from proxy.config.limit_options import LimitOptions
from proxy.config.listener_options import ListenerOptions
from proxy.config.options import AdminOptions, Config, LogOptions, Source, StateOptions
from proxy.config.process_options import ProcessOptions
from proxy.config.quota_options import OLD_SCOPE, QuotaSettings
from proxy.config.reassignment_options import ReassignmentSettings
from proxy.config.replication_options import ReplicationSettings
from proxy.config.store_options import check_store, renamed, settled, store_warnings
from proxy.config.tables import build, refuse_unknown
from proxy.errors import ConfigError

T = TypeVar("T")

LISTENERS_MAX: Final = 64
JOURNAL_DIRECTORY: Final = "reassignment"
WILDCARDS: Final = ("0.0.0.0", "::")
SECTIONS: Final = (
    "cluster",
    "listeners",
    "quotas",
    "replication",
    "leases",
    "fleet",
    "reassignment",
    "capture",
    "limits",
    "process",
    "admin",
    "state",
    "log",
)
_QUOTAS_FILE: Final = (
    "this is a table of a quotas file: the configuration names that file with `file` under [quotas], and a command "
    "with --quotas-file"
)
_POLICY_IS_OPEN: Final = (
    'quotas.policy: is not in the file, and the default is "schedule" now; it was "kip13" in earlier releases. Write '
    'policy = "schedule" under [quotas], or policy = "kip13" for Kafka\'s own arithmetic as before'
)
_SASL_OF_CLIENTS: Final = dict.fromkeys(
    ("security_protocol", "sasl_mechanism", "username", "password_file", "password"),
    "clients authenticate with the brokers, through Sluice",
)
UNSUPPORTED_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "cluster": UNSUPPORTED_CLUSTER_KEYS,
    "listeners": _SASL_OF_CLIENTS,
}


def parse(tables: Mapping[str, object], source: Source, base: Path) -> Config:
    """Make the configuration from the file's tables and their overrides.

    Args:
        tables: the parsed TOML.
        source: the environment and the command line's tables; the latter override the former.
        base: the directory that paths in the configuration are relative to.

    Raises:
        ConfigError: the first invalid key.
    """
    changed, origins = override(tables, source.environ)
    changed = merge(changed, source.overrides)
    try:
        config = _parse(changed, source, base)
        shown = [
            f"{path}: is plain text in the configuration; password_file or {variable_of(path)} avoids that"
            for path, cluster in (
                ("cluster.password", config.cluster),
                ("fleet.cluster.password", config.fleet.cluster),
            )
            if cluster is not None and cluster.password and path not in origins
        ]
        return replace(config, warnings=(*config.warnings, *shown))
    except ConfigError as error:
        variable = origins.get(error.path)
        if variable is None:
            raise
        raise ConfigError(f"{error.path} (from {variable})", error.problem, error.value) from None


def _parse(given: Tables, source: Source, base: Path) -> Config:
    if "quota" in given:
        raise ConfigError("quota", _QUOTAS_FILE)
    refuse_unknown(given, SECTIONS, "", {})
    tables, old_names = renamed(given)
    quotas = _section(QuotaSettings, fields(QuotaSettings), "quotas", tables)
    state = _section(StateOptions, fields(StateOptions), "state", tables)
    capture = _section(CaptureOptions, fields(CaptureOptions), "capture", tables)
    cluster = _section(ClusterOptions, fields(ClusterOptions), "cluster", tables)
    listeners = _listeners(tables.get("listeners", []), base)
    leases = _section(LeaseOptions, fields(LeaseOptions), "leases", tables)
    fleet, replaced = leases.as_fleet(
        _section(FleetOptions, fields(FleetOptions), "fleet", tables),
        replicates=any(listener.replicates for listener in listeners),
    )
    config = Config(
        cluster=_cluster(cluster.with_absolute_paths(base), listeners),
        listeners=listeners,
        quotas=settled(
            _with_scope_default(
                _without_holds(replace(quotas, file=_absolute(base, quotas.file))),
                listeners,
                _table(tables, "quotas"),
            ),
            _table(tables, "quotas"),
        ),
        replication=_section(ReplicationSettings, fields(ReplicationSettings), "replication", tables),
        fleet=fleet.settled(base),
        reassignment=_with_journal(
            _section(ReassignmentSettings, fields(ReassignmentSettings), "reassignment", tables),
            base,
            state.directory,
        ),
        capture=replace(capture, directory=_absolute(base, capture.directory)),
        limits=_section(LimitOptions, fields(LimitOptions), "limits", tables),
        process=_section(ProcessOptions, fields(ProcessOptions), "process", tables),
        admin=_section(AdminOptions, fields(AdminOptions), "admin", tables),
        state=replace(state, directory=_absolute(base, state.directory)),
        log=_section(LogOptions, fields(LogOptions), "log", tables),
        source=source,
    )
    warnings = old_names + replaced + check(config)
    check_store(config)
    check_journal(config)
    if _table(tables, "quotas").get("scope") == OLD_SCOPE:
        warnings.append(f'quotas.scope: "{OLD_SCOPE}" is now called "cluster"')
    warnings += store_warnings(config.quotas, quotas.file, in_fleet=fleet.configured)
    warnings += config.replication.warnings()
    warnings += fleet.warnings(windows=config.replicates and config.replication.policy == "kip73")
    warnings += config.reassignment.warnings()
    config.capture.check()
    warnings += config.capture.warnings()
    warnings += without_effect(config)
    if source.path is not None and _policy_is_open(config, tables):
        warnings.append(_POLICY_IS_OPEN)
    if (
        quotas.policy == "kip13"
        and "hold_seconds_max" in _table(tables, "quotas")
        and quotas.hold_seconds_max
    ):
        warnings.append(
            "quotas.hold_seconds_max: has no effect with policy kip13, which never holds a request back"
        )
    return replace(config, warnings=tuple(warnings))


def _policy_is_open(config: Config, tables: Tables) -> bool:
    """Whether clients have quotas by this file, and it leaves open by which policy: its default was another one."""
    quotas = _table(tables, "quotas")
    if "policy" in quotas or all(listener.replicates for listener in config.listeners):
        return False
    return bool(quotas or config.source.quota_text)


def _section(make: Callable[..., T], known: Sequence[Field[object]], name: str, tables: Tables) -> T:
    return build(make, known, name, _table(tables, name), UNSUPPORTED_KEYS.get(name, {}))


def _table(tables: Tables, name: str) -> Tables:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(name, f"must be a table: [{name}]", table)
    return table


def _listeners(value: object, base: Path) -> tuple[ListenerOptions, ...]:
    if not isinstance(value, list):
        raise ConfigError("listeners", "must be a list of tables: [[listeners]]", value)
    if not value:
        raise ConfigError("listeners", "there must be at least one: [[listeners]]")
    if len(value) > LISTENERS_MAX:
        raise ConfigError("listeners", f"there may be at most {LISTENERS_MAX}", len(value))
    return tuple(_listener(f"listeners[{index}]", item, base) for index, item in enumerate(value))


def _listener(path: str, table: object, base: Path) -> ListenerOptions:
    if not isinstance(table, dict):
        raise ConfigError(path, "must be a table: [[listeners]]", table)
    built = build(ListenerOptions, fields(ListenerOptions), path, table, UNSUPPORTED_KEYS["listeners"])
    host = built.advertised_host or built.bind
    if host in WILDCARDS and not built.sidecar:
        key = "advertised_host"
        problem = "must name the host that clients connect to, since the port is bound on every address"
        raise ConfigError(f"{path}.{key}", problem, host)
    return replace(
        built,
        tls=built.tls.with_absolute_paths(base) if built.tls else None,
        advertised_host=host,
        advertised_bootstrap_port=built.advertised_bootstrap_port or built.bootstrap_port,
        advertised_first_broker_port=built.advertised_first_broker_port or built.first_broker_port,
    )


def _cluster(cluster: ClusterOptions, listeners: Sequence[ListenerOptions]) -> ClusterOptions:
    """Fill in `bootstrap` of a sidecar: the brokers behind it."""
    if cluster.bootstrap:
        return cluster
    if not all(listener.sidecar for listener in listeners):
        raise ConfigError("cluster.bootstrap", "must name one or more brokers, as host:port")
    upstreams = tuple(address for listener in listeners for address in listener.upstreams.values())
    return replace(cluster, bootstrap=upstreams)


def _without_holds(quotas: QuotaSettings) -> QuotaSettings:
    """With `kip13` the longest hold is 0: Kafka never holds a request."""
    return replace(quotas, hold_seconds_max=0.0) if quotas.policy == "kip13" else quotas


def _with_scope_default(
    quotas: QuotaSettings, listeners: Sequence[ListenerOptions], table: Tables
) -> QuotaSettings:
    """Fill in the scope of a gateway: it sees all brokers. Quotas that are the brokers' own hold at each of them."""
    gateway = any(not listener.sidecar for listener in listeners)
    if "scope" in table or not gateway or quotas.store == "cluster":
        return quotas
    return replace(quotas, scope="cluster")


def _with_journal(settings: ReassignmentSettings, base: Path, state: Path | None) -> ReassignmentSettings:
    """Fill in the journal's directory: reassignments under way must survive a restart."""
    if isinstance(settings.journal, str):
        return settings
    journal = _absolute(base, settings.directory)
    if settings.batches and journal is None:
        if state is None:
            problem = (
                'mode = "batch" needs a directory on disk, or "topic": set this key, or [state] directory'
            )
            raise ConfigError("reassignment.journal", problem)
        journal = base / state / JOURNAL_DIRECTORY
    return replace(settings, journal=journal)


def _absolute(base: Path, path: Path | None) -> Path | None:
    return None if path is None else base / path
