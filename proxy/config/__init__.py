"""Configuration: TOML and environment -> frozen options; an error names its key path and the value.

    schema       how a key is declared, and how a value is read by its declaration
    options      the tables: every key's declaration
    principals   `ssl.principal.mapping.rules`, a value with a language of its own
    checks       keys against each other; warnings about what is probably a mistake
    parser       files, environment and command line -> Config
    definitions  a configuration -> the quota engine's options and definitions; which changes apply at a reload

KIP-13's static settings are keys of `[quotas]`. The effect of a setting is implemented elsewhere.
"""

from proxy.config.checks import terms_problem, unwritable
from proxy.config.definitions import (
    Changes,
    check_terms,
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
    ClusterTls,
    Config,
    FleetOptions,
    FleetTls,
    LimitOptions,
    ListenerOptions,
    ListenerTls,
    LogOptions,
    PortTls,
    ProcessOptions,
    QuotaSettings,
    ReassignmentSettings,
    ReplicationSettings,
    Source,
)
from proxy.config.parser import load, parse, read_text, reload
from proxy.config.schema import Address, Network, decode_hook, encode_hook

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
    "PortTls",
    "ProcessOptions",
    "QuotaSettings",
    "ReassignmentSettings",
    "ReplicationSettings",
    "Source",
    "check_terms",
    "command_line_quotas",
    "compare",
    "decode_hook",
    "encode_hook",
    "engine_options",
    "load",
    "merge_live",
    "parse",
    "read_definitions",
    "read_text",
    "reload",
    "static_quotas",
    "terms_problem",
    "unenforced",
    "unwritable",
]
