"""The facts that members of a fleet send about themselves, so that differences are found; pure."""

from typing import Final

from proxy.config import QuotaSettings, ReassignmentSettings
from proxy.fleet.codec import FACT_BYTES_MAX, Facts
from proxy.version import sluice_version
from quotas.definitions.definitions import Definitions
from quotas.options import EngineOptions

__all__ = ["DIGEST", "QUOTAS", "facts_of"]

QUOTAS: Final = "quotas"
DIGEST: Final = "quotas_digest"


def facts_of(
    settings: QuotaSettings,
    reassignment: ReassignmentSettings,
    members_max: int,
    options: EngineOptions,
    definitions: Definitions,
) -> Facts:
    """Return the facts of one member.

    Args:
        settings, reassignment: for the store and the journal, which stay as they were at start.
        options: those in force.
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
