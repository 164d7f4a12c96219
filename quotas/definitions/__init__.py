"""Quota definitions: which entity has which limits, where they are written, and how they are changed.

    entities        users, client ids, IP addresses, topics, and their defaults (KIP-55, KIP-612)
    definitions     the limits by entity, with Kafka's order of precedence
    amounts         numbers with units: `2M`, `64Ki`
    toml_file       the quotas file: text <-> definitions
    toml_tables     the file's text, cut into its tables
    toml_edit       the file's text with changes put in; the rest of it stays as it was written
    toml_reader     TOML within bounds
    alterations     AlterClientQuotas: validation and changes (KIP-546)
    filters         DescribeClientQuotas: the entities that match (KIP-546)
    digest          what is equal where quotas are
    diff            the alterations that turn one set of quotas into another
    rollout         quotas lowered in steps

Nothing here limits traffic: `quotas.throttles` and `quotas.limiters` do.
"""

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity

__all__ = ["DEFAULT", "Definitions", "Entity", "StaticQuotas"]
