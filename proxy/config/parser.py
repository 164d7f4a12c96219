"""TOML tables -> Config. Pure: no file is read here, and no name is resolved.

Every key belongs to a field. An unknown key is an error with the most similar key; for a key of Kafka's clients that is
not supported here, the error says why. Values are read one by one, and checked against each other at the end
(`proxy.config.checks`).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import Field, fields, replace
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar

from proxy.config.checks import check, without_effect
from proxy.config.options import (
    OLD_SCOPE,
    AdminOptions,
    CaptureOptions,
    ClusterOptions,
    Config,
    FleetOptions,
    LeaseOptions,
    LimitOptions,
    ListenerOptions,
    LogOptions,
    ProcessOptions,
    QuotaSettings,
    ReassignmentSettings,
    ReplicationSettings,
    Source,
    StateOptions,
)
from proxy.config.options import (
    UNSUPPORTED_KEYS as UNSUPPORTED_CLUSTER_KEYS,
)
from proxy.config.readers import build, refuse_unknown
from proxy.config.stores import check_journal, check_store, renamed, settled, store_warnings
from proxy.system.errors import ConfigError
from proxy.system.files import read
from quotas.definitions.toml_file import loads
from quotas.errors import TomlError

# ----------------------------------------------------------------------------------------------------
# Environment variables that override the file: `SLUICE_ADMIN__BIND`, `SLUICE_LISTENERS__0__BIND`.
#
# Two underscores separate the parts of a key's path. A variable without two underscores is not a setting:
# Kubernetes
# sets `SLUICE_PORT` and `SLUICE_SERVICE_HOST` in every container when a Service is named sluice. Values are
# strings; the
# readers parse numbers. The parser refuses unknown keys, with the name of the variable.


PREFIX: Final = "SLUICE_"
SEPARATOR: Final = "__"
LISTS: Final = ("listeners",)  # the keys that are lists of tables

Tables = dict[str, object]


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that override a key."""
    return {name: text for name, text in environ.items() if name.startswith(PREFIX) and SEPARATOR in name}


def steps(name: str) -> tuple[str, ...]:
    """Return the path of the key that a variable overrides.

    >>> steps("SLUICE_LISTENERS__0__BIND")
    ('listeners', '0', 'bind')
    """
    return tuple(name.removeprefix(PREFIX).lower().split(SEPARATOR))


def variable_of(path: str) -> str:
    """Return the variable that overrides a key outside of lists.

    >>> variable_of("cluster.password")
    'SLUICE_CLUSTER__PASSWORD'
    """
    return PREFIX + path.upper().replace(".", SEPARATOR)


def key_path(path: tuple[str, ...]) -> str:
    """Format a path for error messages.

    >>> key_path(("listeners", "0", "bind"))
    'listeners[0].bind'
    """
    written = path[0]
    for before, step in pairwise(path):
        written += f"[{step}]" if before in LISTS else f".{step}"
    return written


def override(tables: Mapping[str, object], environ: Mapping[str, str]) -> tuple[Tables, dict[str, str]]:
    """Merge the environment's values into a copy of the tables.

    Returns: the new tables, and for each overridden key path its variable.
    """
    changed: Tables = deepcopy(dict(tables))
    origins: dict[str, str] = {}
    found = variables(environ)
    for name in sorted(found, key=_order):
        path = steps(name)
        if "" in path:
            raise ConfigError(name, "is not the name of a key: SLUICE_SECTION__KEY", found[name])
        _put(changed, path, found[name], name)
        origins[key_path(path)] = name
    return changed, origins


def merge(tables: Mapping[str, object], more: Mapping[str, object]) -> Tables:
    """Override tables by others: tables are merged, every other value and every list is replaced."""
    merged: Tables = dict(tables)
    for name, value in more.items():
        below = merged.get(name)
        if isinstance(value, Mapping):
            merged[name] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged


def _order(name: str) -> tuple[tuple[int, str], ...]:
    # Listener 2 before listener 10: a list grows by one at its end.
    return tuple((int(step) if step.isdecimal() and len(step) < 10 else -1, step) for step in steps(name))


def _put(tables: Tables, path: tuple[str, ...], text: str, name: str) -> None:
    here: object = tables
    for depth, step in enumerate(path[:-1]):
        if isinstance(here, dict):
            here = here.setdefault(step, [] if step in LISTS else {})
        elif isinstance(here, list):
            here = _item(here, step, name, text)
        else:
            raise ConfigError(name, f"{key_path(path[:depth])} is not a table", text)
    if not isinstance(here, dict):
        raise ConfigError(name, f"{key_path(path[:-1])} is not a table that could hold {path[-1]!r}", text)
    here[path[-1]] = text


def _item(items: list[object], step: str, name: str, text: str) -> object:
    if not step.isdecimal() or len(step) > 4 or int(step) > len(items):
        raise ConfigError(
            name, f"{step!r} is not the number of a listener; the next new one is {len(items)}", text
        )
    if int(step) == len(items):
        items.append({})
    return items[int(step)]


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


# ----------------------------------------------------------------------------------------------------
# Reads the configuration file and the quotas file; `parser` validates them.


FILE_BYTES_MAX: Final = 64 * 1024**2  # a quotas file of 200,000 clients takes about 15 MB
CONFIG_BYTES_MAX: Final = 16 * 1024**2  # 100,000 topics in a list of throttled replicas


def load(
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    quota_text: str = "",
) -> Config:
    """Read a configuration: the file, then the environment over it, then the command line over both.

    Args:
        path: the TOML file; None for none.
        environ: the whole environment; other programs' variables are ignored.
        overrides: the command line's settings, as TOML tables.
        quota_text: `[[quota]]` tables from the command line, beside those of the quotas file.

    Raises:
        ConfigError: with the key path and the value; or with the file, if it cannot be read or is not TOML.
    """
    absolute = None if path is None else path.absolute()
    return reload(Source(absolute, variables(environ), dict(overrides or {}), quota_text))


def reload(source: Source) -> Config:
    """Read a configuration again from its source."""
    if source.path is None:
        return parse({}, source, Path.cwd())
    try:
        tables = loads(read_text(source.path, CONFIG_BYTES_MAX))
    except TomlError as error:
        raise ConfigError(str(source.path), f"is not TOML: {error}") from None
    # Symbolic links are not resolved: Kubernetes swaps the directory behind a mounted ConfigMap's link.
    return parse(tables, source, source.path.parent)


def read_quotas_text(path: Path) -> str:
    """Read the quotas file; if it does not exist, the error says how to create one.

    Raises:
        ConfigError: as `read_text`.
    """
    try:
        return read_text(path)
    except ConfigError as error:
        raise ConfigError(error.path, error.problem + missing_file_hint(path)) from None


def missing_file_hint(path: Path) -> str:
    """Return how to create a quotas file that does not exist; "" if it exists.

    >>> missing_file_hint(Path("/nowhere/quotas.toml"))
    '; an empty file is enough to begin with: touch /nowhere/quotas.toml'
    """
    return "" if path.exists() else f"; an empty file is enough to begin with: touch {quote(str(path))}"


def read_text(path: Path, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Read a text file of bounded size.

    Raises:
        ConfigError: it does not exist, is not a regular file, is too large, or is not UTF-8.
    """
    try:
        return read(path, bytes_max).decode("utf-8")
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8: byte {error.start}") from None
