"""The output of `sluice check --format json`: one document, with names and units of the configuration. Pure.

Its keys are config, problem ("" without an error), warnings, listeners, quotas, replication, fleet, reassignment,
capture and admin, and without `--offline` also cluster and the members of a fleet. If the configuration cannot be read,
it has the first two only.
"""

from collections.abc import Mapping
from typing import Final

from proxy.commands import check_fleet
from proxy.commands.quota_formats import as_table
from proxy.config import Address, Config, ListenerOptions
from quotas.definitions.entities import Entity

ENTITIES_SHOWN_MAX: Final = 10_000


def describe(config: Config, limits: Mapping[Entity, Mapping[str, float]]) -> dict[str, object]:
    """Return the document of a configuration; `limits` are those in force, by entity."""
    settings, capture = config.quotas, config.capture
    return {
        "listeners": [_listener(listener) for listener in config.listeners],
        "quotas": {
            "policy": settings.policy,
            "mode": settings.mode,
            "scope": settings.scope,
            "store": settings.store,
            "source": settings.store,  # its old name
            "file": None if settings.file is None else str(settings.file),
            "entities": len(limits),
            "limits": [
                {**as_table(entity), "quotas": dict(values)}
                for entity, values in list(limits.items())[:ENTITIES_SHOWN_MAX]
            ],
        },
        "replication": {
            "policy": config.replication.policy,
            "throttled": config.replication.throttled,
            "leader_rate": config.replication.leader_rate,
            "follower_rate": config.replication.follower_rate,
        }
        if config.replicates
        else None,
        "fleet": check_fleet.document(config.fleet),
        "reassignment": {"mode": config.reassignment.mode, "journal": _text(config.reassignment.journal)},
        "capture": None
        if capture.directory is None
        else {
            "directory": str(capture.directory),
            "sample": capture.sample,
            "frames": capture.frames,
            "rotate_bytes": capture.rotate_bytes,
            "rotate_seconds": capture.rotate_seconds,
            "max_bytes": capture.max_bytes,
        },
        "admin": _text(config.admin.bind),
    }


def describe_cluster(
    found: Mapping[int, Address], unknown: Mapping[int, str], missing: Mapping[str, list[int]]
) -> dict[str, object]:
    """Return the document's part on the cluster.

    Args:
        found: the cluster's brokers.
        unknown: the brokers behind sidecars that do not report what they advertise, and why.
        missing: by listener, the brokers without a port.
    """
    return {
        "brokers": [{"id": broker, "address": str(address)} for broker, address in sorted(found.items())],
        "advertised_unknown": [{"id": broker, "reason": why} for broker, why in sorted(unknown.items())],
        "without_port": [{"listener": name, "brokers": brokers} for name, brokers in missing.items()],
    }


def _listener(listener: ListenerOptions) -> dict[str, object]:
    return {
        "name": listener.name,
        "kind": listener.kind,
        "bind": listener.bind,
        "bootstrap_port": None if listener.replicates else listener.bootstrap_port,
        "first_broker_port": listener.first_broker_port,
        "broker_id_max": listener.broker_id_max,
        "advertised_host": listener.advertised_host,
        "advertised_bootstrap_port": listener.advertised_bootstrap_port,
        "advertised_first_broker_port": listener.advertised_first_broker_port,
        "upstreams": {str(broker): str(address) for broker, address in listener.upstreams.items()},
        "tls": None if listener.tls is None else {"client_auth": listener.tls.client_auth},
        "proxy_protocol_sources": list(map(str, listener.proxy_protocol_sources)),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
