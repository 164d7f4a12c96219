"""Quota rules as arithmetic: what happened goes in with its time, a decision comes out (KIP-13, KIP-219).

Pure: no IO, no clock, no threads; it ships to Spark executors as it is. Where to begin: `engine`.
"""

from quotas.decisions import ADMITTED, Decision
from quotas.definitions import Definitions, StaticQuotas
from quotas.engine import ClientQuota, Engine, QuotaView
from quotas.entities import DEFAULT, Entity
from quotas.errors import DefinitionError, QuotaError
from quotas.options import EngineOptions

__all__ = [
    "ADMITTED",
    "DEFAULT",
    "ClientQuota",
    "Decision",
    "DefinitionError",
    "Definitions",
    "Engine",
    "EngineOptions",
    "Entity",
    "QuotaError",
    "QuotaView",
    "StaticQuotas",
]
