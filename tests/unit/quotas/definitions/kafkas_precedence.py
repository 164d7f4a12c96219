"""The definitions of Kafka's own test of precedence (ClientQuotaManagerTest.testQuotaConfigPrecedence)."""

from quotas.definitions.entities import DEFAULT, Name

Rates = dict[tuple[Name, Name], float]

KAFKAS: Rates = {
    (DEFAULT, None): 1000,
    (None, DEFAULT): 2000,
    (DEFAULT, DEFAULT): 3000,
    ("A", None): 4000,
    ("A", "c1"): 5000,
    ("B", None): 6000,
    ("B", "c1"): 7000,
    ("B", DEFAULT): 8000,
    ("C", None): 10_000,
    (None, "c1"): 9000,
}
