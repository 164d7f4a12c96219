"""Quota settings -> the quota engine's options and definitions.

A `[[quota]]` entry overrides a static setting of the same client id or default, as dynamic overrides static in Kafka;
an entry of the command line overrides one of the file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.config.checks import limit_warnings, terms_problem
from proxy.config.options import SECTIONS, Config, QuotaSettings
from proxy.config.parser import read_quotas_text
from proxy.config.schema import Options, keys_of
from proxy.system.errors import ConfigError
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import parse
from quotas.errors import DefinitionError
from quotas.options import EngineOptions

UNENFORCED_MAX: Final = 20
CLIENTS_SHARE: Final = 3  # eighths of the budget for kept bytes that clients' names and limiters may take
# The keys of `[quotas]` that are options of the engine under the same name.
_OF_ENGINE: Final = {one.name for one in fields(EngineOptions)} & {*QuotaSettings.__struct_fields__}


def engine_options(config: Config) -> EngineOptions:
    """Return the options of the quota engine for a configuration."""
    limits = config.limits
    return EngineOptions(
        **{name: getattr(config.quotas, name) for name in _OF_ENGINE},
        client_ids_max=limits.client_ids_max,
        client_bytes_max=limits.kept_bytes_max * CLIENTS_SHARE // 8,
    )


def read_definitions(quotas: QuotaSettings, quota_text: str = "") -> Definitions:
    """Read the quotas file, if there is one, and add static settings and the command line's entries.

    Args:
        quotas: the path of the file and the static settings.
        quota_text: `[[quota]]` tables from the command line.

    Raises:
        ConfigError: the file cannot be read, or a definition is invalid.
    """
    static = static_quotas(quotas)
    if quotas.file is None:
        found = _parse("quotas", "", static)
    else:
        found = _parse(str(quotas.file), read_quotas_text(quotas.file), static)
    for entity, values in command_line_quotas(quota_text).entries():
        found.put(entity, values)
    found.elapse(datetime.now(UTC))
    check_terms(quotas, found.term_keys())
    return found


def check_terms(quotas: QuotaSettings, found: Iterable[tuple[Entity, str]]) -> None:
    """Check that capacities, and the terms of their use, can hold with these settings.

    Args:
        found: entities and quota keys.

    Raises:
        ConfigError: one cannot.
    """
    for entity, key in found:
        problem = terms_problem(quotas, entity, key)
        if problem:
            raise ConfigError("quotas" if quotas.file is None else str(quotas.file), problem)


def static_quotas(quotas: QuotaSettings) -> StaticQuotas:
    """Return the static quotas: KIP-13's `producer_default`, `producer_override` and those of consumers."""
    return StaticQuotas(
        producer_default=quotas.producer_default,
        producer_override=quotas.producer_override,
        consumer_default=quotas.consumer_default,
        consumer_override=quotas.consumer_override,
    )


def command_line_quotas(quota_text: str) -> Definitions:
    """Parse the `[[quota]]` tables from the command line.

    Raises:
        ConfigError: a definition is invalid.
    """
    return _parse("--quota", quota_text, StaticQuotas())


def unenforced(entries: Iterable[tuple[Entity, Mapping[str, float]]], file: Path | None = None) -> list[str]:
    """Return warnings, at most UNENFORCED_MAX, about limits without effect, or with an unexpected one.

    Args:
        entries: quota entities, and the limits of each.
        file: the file that has them, which the warnings name; None to name none.
    """
    place = "" if file is None else f"{file}: "
    found = (f"{place}{warning}" for entity, values in entries for warning in limit_warnings(entity, values))
    return list(islice(found, UNENFORCED_MAX))


def _parse(where: str, text: str, static: StaticQuotas) -> Definitions:
    try:
        return parse(text, static)
    except DefinitionError as error:
        raise ConfigError(f"{where}: {error.path}" if error.path else where, error.problem) from None


# ----------------------------------------------------------------------------------------------------
# The differences of two configurations, and which of them apply without a restart.


@dataclass(frozen=True, slots=True)
class Changes:
    """The keys whose values differ between two configurations, as paths.

    Args:
        live: the keys that apply now.
        restart: the keys that need a restart; until then their old values apply.
    """

    live: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def compare(old: Config, new: Config) -> Changes:
    """Return the keys whose values differ between two configurations, in the order of the documentation."""
    live: list[str] = []
    restart: list[str] = []
    for section, options in SECTIONS.items():
        keys = keys_of(options)
        for name in _changed(getattr(old, section), getattr(new, section)):
            (live if keys[name].live else restart).append(f"{section}.{name}")
    if len(old.listeners) != len(new.listeners):
        restart.append("listeners")
    else:
        for index, pair in enumerate(zip(old.listeners, new.listeners, strict=True)):
            restart += [f"listeners[{index}].{name}" for name in _changed(*pair)]
    return Changes(tuple(live), tuple(restart))


def _changed(old: Options, new: Options) -> list[str]:
    return [name for name in old.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def merge_live(old: Config, new: Config) -> Config:
    """Return the configuration after a reload: the new one's live keys, and the old one's other keys."""
    merged = {}
    for section, options in SECTIONS.items():
        # For all sections alike, so that no new key can be missed here.
        before = getattr(old, section)
        kept = {name: getattr(before, name) for name, key in keys_of(options).items() if not key.live}
        merged[section] = replace(getattr(new, section), **kept)
    return replace(new, listeners=old.listeners, **merged)
