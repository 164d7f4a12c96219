"""The pipeline from captured traffic to recommended quotas, on Spark; no part of the proxy (docs/offline.md)."""

__all__: list[str] = []
