"""Configuration: TOML and environment -> frozen options; an error names its key path and the value.

    readers             single values; `quotas.definitions.amounts` has the units
    keys, options, *_options  the option classes, each field with the description of its key
    tables              one table -> its options
    environment         variables such as SLUICE_ADMIN__BIND
    parser, checks, effects  tables -> Config: pure
    disk                warnings about directories that cannot be written to
    loader              reads the file
    changes             the changes that a reload applies
    definitions         options and definitions of the quota engine

KIP-13's static settings are keys of `[quotas]`. The effect of a setting is implemented elsewhere.
"""

from proxy.config.checks import unwritable
from proxy.config.definitions import (
    Changes,
    command_line_quotas,
    compare,
    engine_options,
    merge_live,
    read_definitions,
    static_quotas,
    unenforced,
)
from proxy.config.options import (
    AUTO,
    LOG_FORMATS,
    LOG_LEVELS,
    OLD_SCOPE,
    WORKERS_MAX,
    AdminOptions,
    CaptureOptions,
    ClusterOptions,
    Config,
    FleetOptions,
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
from proxy.config.parser import load, parse, read_text, reload
from proxy.config.readers import Address, Network
from proxy.config.tls import ClusterTls, FleetTls, ListenerTls

__all__ = [
    "AUTO",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "OLD_SCOPE",
    "WORKERS_MAX",
    "Address",
    "AdminOptions",
    "CaptureOptions",
    "Changes",
    "ClusterOptions",
    "ClusterTls",
    "Config",
    "FleetOptions",
    "FleetTls",
    "LimitOptions",
    "ListenerOptions",
    "ListenerTls",
    "LogOptions",
    "Network",
    "ProcessOptions",
    "QuotaSettings",
    "ReassignmentSettings",
    "ReplicationSettings",
    "Source",
    "StateOptions",
    "command_line_quotas",
    "compare",
    "engine_options",
    "load",
    "merge_live",
    "parse",
    "read_definitions",
    "read_text",
    "reload",
    "static_quotas",
    "unenforced",
    "unwritable",
]
