"""How exactly quotas are kept: Kafka's own, `kip13` and `schedule` in one run, with real clients.

Bytes are counted at one neutral place for all three, a relay in front of the broker (`relay`).
"""

__all__: list[str] = []
