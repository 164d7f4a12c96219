"""From captured traffic to quotas, on Spark: never in the traffic's way (docs/offline.md)."""

__all__: list[str] = []
