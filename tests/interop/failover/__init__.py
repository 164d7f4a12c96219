"""What clients do when the gateway that they use dies, by family and release: `make failover`.

The table is in docs/how-to/when-a-gateway-dies.md.
"""

__all__: list[str] = []
