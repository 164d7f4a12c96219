"""The facts that members of a fleet send about themselves, so that differences between members are found; pure."""

from typing import Final

from proxy.config import Address, FleetOptions, QuotaSettings, ReassignmentSettings
from proxy.config.fleet_options import LOOPBACK, WILDCARDS
from proxy.fleet.codec import FACT_BYTES_MAX, Facts
from proxy.version import sluice_version
from quotas.definitions.definitions import Definitions
from quotas.options import EngineOptions

QUOTAS: Final = "quotas"
DIGEST: Final = "quotas_digest"
ENDED: Final = "ended"  # the runs of the holders that a member has seen end, hexadecimal
LISTENS: Final = "listens"  # the port that a member has bound, if it may be the holder


def facts_of(
    settings: QuotaSettings,
    reassignment: ReassignmentSettings,
    members_max: int,
    options: EngineOptions,
    definitions: Definitions,
) -> Facts:
    """Return the facts of one member.

    Args:
        settings, reassignment: the settings of the store and of the journal, which a reload does not change.
        options: the engine's options in force.
        definitions: the quotas in force, which keep a digest.
    """
    store = f"topic {settings.topic}" if settings.store == "topic" else settings.store
    return {
        "version": sluice_version(),
        "members_max": str(members_max),
        "scope": options.scope,
        "policy": options.policy,
        "mode": options.mode,
        "windows": f"{options.window_samples} of {options.window_seconds:g} s",
        "burst_seconds": f"{options.burst_seconds:g}",
        "partition_mutations": _mutations(options),
        "store": store[:FACT_BYTES_MAX],
        "journal": _journal(reassignment),
        QUOTAS: str(len(definitions)),
        DIGEST: definitions.digest,
    }


def addresses_of(fleet: FleetOptions, admin: Address | None) -> Facts:
    """Return the addresses of a member, as facts that may differ between members.

    Args:
        admin: the address of its admin port; only members on the same machine reach one on loopback.
    """
    own = fleet.own_address
    found = {} if own is None else {"address": str(own)}
    if admin is None:
        return found
    host = admin.host
    if host in WILDCARDS:
        host = fleet.own_name if own is None else own.host
    if host not in LOOPBACK or (own is not None and own.host in LOOPBACK):
        found["admin"] = f"http://{admin._replace(host=host)}"
    return {name: value[:FACT_BYTES_MAX] for name, value in found.items()}


def _journal(reassignment: ReassignmentSettings) -> str:
    if not reassignment.batches:
        return "none"
    # A directory may be mounted elsewhere at each member.
    return f"topic {reassignment.journal_topic}"[:FACT_BYTES_MAX] if reassignment.in_topic else "file"


def _mutations(options: EngineOptions) -> str:
    rate, burst = options.partition_mutations_rate, options.partition_mutations_burst
    if rate is None:
        return "unlimited"
    return f"{rate:g}/s" if burst is None else f"{rate:g}/s, {burst:g} at once"
