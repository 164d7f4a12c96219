"""TOML, environment and command line -> Config.

`load` and `reload` read the files; `parse` is pure, and resolves no name. A table's values are read by the declarations
of its keys (`proxy.config.schema`); then what one table decides of another is filled in, and all are checked against
each other (`proxy.config.checks`).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Any, Final

from msgspec.structs import replace

from proxy.config.checks import check
from proxy.config.options import (
    SECTIONS,
    TABLES,
    ClusterOptions,
    Config,
    LeaseOptions,
    ListenerOptions,
    QuotaSettings,
    ReassignmentSettings,
    Source,
)
from proxy.config.schema import read_table, refuse_unknown, with_absolute_paths
from proxy.system.errors import ConfigError
from proxy.system.files import read
from quotas.definitions import toml_file
from quotas.errors import TomlError

Tables = dict[str, object]

LISTENERS_MAX: Final = 64
JOURNAL_DIRECTORY: Final = "reassignment"
_OLD_STORE: Final = "source"  # how `[quotas] store` was called
_QUOTAS_FILE: Final = (
    "this is a table of a quotas file: the configuration names that file with `file` under [quotas], and a command "
    "with --quotas-file"
)


# ----------------------------------------------------------------------------------------------------
# The files


FILE_BYTES_MAX: Final = 256 * 1024**2  # a quotas file of a million clients with two limits takes about 110 MB
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
    """Read a configuration again, from the sources that it was read from."""
    if source.path is None:
        return parse({}, source, Path.cwd())
    try:
        tables = toml_file.loads(read_text(source.path, CONFIG_BYTES_MAX))
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


# ----------------------------------------------------------------------------------------------------
# Tables -> Config


def parse(tables: Mapping[str, object], source: Source, base: Path) -> Config:
    """Create the configuration from the file's tables and their overrides.

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
        shown = tuple(
            f"{path}: is plain text in the configuration; password_file or {variable_of(path)} avoids that"
            for path, cluster in (
                ("cluster.password", config.cluster),
                ("fleet.cluster.password", config.fleet.cluster),
            )
            if cluster is not None and cluster.password and path not in origins
        )
        return replace(config, warnings=config.warnings + shown)
    except ConfigError as error:
        variable = origins.get(error.path)
        if variable is None:
            raise
        raise ConfigError(f"{error.path} (from {variable})", error.problem, error.value) from None


def _parse(given: Tables, source: Source, base: Path) -> Config:
    for table in toml_file.TABLES:
        if table in given:
            raise ConfigError(table, _QUOTAS_FILE)
    refuse_unknown(given, [*TABLES, "leases"], "")
    tables, old_names = _renamed(given)
    sections: dict[str, Any] = {
        name: read_table(kind, name, tables.get(name, {})) for name, kind in SECTIONS.items()
    }
    listeners = _listeners(tables.get("listeners", []))
    leases = read_table(LeaseOptions, "leases", tables.get("leases", {}))
    config = Config(listeners=listeners, source=source, **sections)
    fleet, replaced = leases.as_fleet(config.fleet, replicates=config.replicates)
    config = with_absolute_paths(replace(config, fleet=fleet), base)
    written = tables.get("quotas", {})
    assert isinstance(written, dict), "it has been read"
    config = replace(
        config,
        cluster=_cluster(config.cluster, listeners),
        quotas=_quotas(config.quotas, listeners, written),
        reassignment=_with_journal(config.reassignment, base, config.state.directory),
    )
    return replace(config, warnings=(*old_names, *replaced, *check(config, written)))


def _renamed(tables: Tables) -> tuple[Tables, list[str]]:
    """Rename `[quotas] source` of an earlier release; returns the tables, and a warning if it was there."""
    quotas = tables.get("quotas")
    if not isinstance(quotas, Mapping) or _OLD_STORE not in quotas:
        return tables, []
    if "store" in quotas:
        raise ConfigError(
            f"quotas.{_OLD_STORE}", "is the old name of store, which is there too: leave it out"
        )
    changed = {"store" if name == _OLD_STORE else name: value for name, value in quotas.items()}
    warning = f"quotas.{_OLD_STORE}: is now called store, with the same values"
    return {**tables, "quotas": changed}, [warning]


def _listeners(value: object) -> tuple[ListenerOptions, ...]:
    if not isinstance(value, list):
        raise ConfigError("listeners", "must be a list of tables: [[listeners]]", value)
    if not value:
        raise ConfigError("listeners", "there must be at least one: [[listeners]]")
    if len(value) > LISTENERS_MAX:
        raise ConfigError("listeners", f"there may be at most {LISTENERS_MAX}", len(value))
    return tuple(read_table(ListenerOptions, f"listeners[{index}]", item) for index, item in enumerate(value))


def _cluster(cluster: ClusterOptions, listeners: Sequence[ListenerOptions]) -> ClusterOptions:
    """Return `[cluster]` with the bootstrap addresses of a sidecar filled in: those of the brokers behind it."""
    if cluster.bootstrap:
        return cluster
    if not all(listener.sidecar for listener in listeners):
        raise ConfigError("cluster.bootstrap", "must name one or more brokers, as host:port")
    upstreams = tuple(address for listener in listeners for address in listener.upstreams.values())
    return replace(cluster, bootstrap=upstreams)


def _quotas(
    quotas: QuotaSettings, listeners: Sequence[ListenerOptions], written: Mapping[str, object]
) -> QuotaSettings:
    """Return `[quotas]` with the defaults filled in that depend on policy, store and listeners.

    Kafka's policy never holds a request. A gateway sees all brokers, so its quotas are the cluster's; the brokers' own
    quotas hold at each of them, have no file here, and are only observed, since the brokers enforce them.
    """
    if quotas.policy == "kip13":
        quotas = replace(quotas, hold_seconds_max=0.0)
    if quotas.store == "cluster":
        return replace(quotas, file=None, mode=quotas.mode if "mode" in written else "observe")
    if "scope" not in written and any(not listener.sidecar for listener in listeners):
        return replace(quotas, scope="cluster")
    return quotas


def _with_journal(settings: ReassignmentSettings, base: Path, state: Path | None) -> ReassignmentSettings:
    """Return `[reassignment]` with its journal's directory filled in: moves under way must survive a restart."""
    if settings.directory is not None:
        return replace(settings, journal=str(base / settings.directory))
    if settings.batches and not settings.journal:
        if state is None:
            problem = (
                'mode = "batch" needs a directory on disk, or "topic": set this key, or [state] directory'
            )
            raise ConfigError("reassignment.journal", problem)
        return replace(settings, journal=str(state / JOURNAL_DIRECTORY))
    return settings


# ----------------------------------------------------------------------------------------------------
# Environment variables that override the file: `SLUICE_ADMIN__BIND`, `SLUICE_LISTENERS__0__BIND`. Two underscores
# separate the parts of a key's path. A variable without two underscores is not a setting: Kubernetes sets `SLUICE_PORT`
# and `SLUICE_SERVICE_HOST` in every container when a Service is named sluice.


PREFIX: Final = "SLUICE_"
SEPARATOR: Final = "__"
LISTS: Final = ("listeners",)  # the keys that are lists of tables


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that override a key."""
    return {name: text for name, text in environ.items() if name.startswith(PREFIX) and SEPARATOR in name}


def steps(name: str) -> tuple[str, ...]:
    """Return the path of the key that an environment variable overrides.

    >>> steps("SLUICE_LISTENERS__0__BIND")
    ('listeners', '0', 'bind')
    """
    return tuple(name.removeprefix(PREFIX).lower().split(SEPARATOR))


def variable_of(path: str) -> str:
    """Return the environment variable that overrides a key; the key is not in a list of tables.

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
    """Return `tables` overridden by `more`: tables are merged key by key, other values and lists are replaced."""
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
