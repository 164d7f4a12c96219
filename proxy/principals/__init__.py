"""The principal's name in a certificate: pure, no IO, no ssl.

certificate     a certificate's bytes -> its subject as Java prints it, and when it ends
mapping         that subject -> a principal's name, by Kafka's ssl.principal.mapping.rules
"""

from proxy.config.principals import (
    DEFAULT_RULES,
    CertificateError,
    MappingRules,
    NoMatchingRuleError,
    RuleError,
    expires_at,
    subject,
)

__all__ = [
    "DEFAULT_RULES",
    "CertificateError",
    "MappingRules",
    "NoMatchingRuleError",
    "RuleError",
    "expires_at",
    "subject",
]
