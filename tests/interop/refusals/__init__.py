"""What client families make of refused Produce requests (`make refusals`, docs/refusals.md)."""

__all__: list[str] = []
