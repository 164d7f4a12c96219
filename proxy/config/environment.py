"""Environment variables that override the file: `SLUICE_ADMIN__BIND`, `SLUICE_LISTENERS__0__BIND`.

Two underscores separate the parts of a key's path. A variable without two underscores is not a setting: Kubernetes
sets `SLUICE_PORT` and `SLUICE_SERVICE_HOST` in every container when a Service is named sluice. Values are strings; the
readers parse numbers. The parser refuses unknown keys, with the name of the variable.
"""

from collections.abc import Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Final

from proxy.errors import ConfigError

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
