"""What clients do when the gateway that they use dies, by family and release (`make failover`, docs/operations.md)."""

__all__: list[str] = []
