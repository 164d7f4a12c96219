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

from proxy.config.capture_options import CaptureOptions
from proxy.config.changes import Changes, compare, merge_live
from proxy.config.cluster_options import ClusterOptions
from proxy.config.definitions import (
    command_line_quotas,
    engine_options,
    read_definitions,
    static_quotas,
    unenforced,
)
from proxy.config.disk import unwritable
from proxy.config.fleet_options import FleetOptions
from proxy.config.limit_options import LimitOptions
from proxy.config.listener_options import ListenerOptions
from proxy.config.loader import load, read_text, reload
from proxy.config.options import (
    LOG_FORMATS,
    LOG_LEVELS,
    AdminOptions,
    Config,
    LogOptions,
    Source,
    StateOptions,
)
from proxy.config.parser import parse
from proxy.config.process_options import AUTO, WORKERS_MAX, ProcessOptions
from proxy.config.quota_options import OLD_SCOPE, QuotaSettings
from proxy.config.readers import Address, Network
from proxy.config.reassignment_options import ReassignmentSettings
from proxy.config.replication_options import ReplicationSettings
from proxy.config.tls_options import ClusterTls, FleetTls, ListenerTls

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
