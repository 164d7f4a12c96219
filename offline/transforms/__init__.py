"""DataFrame in, DataFrame out: no session, no reading, no writing (an import contract says so)."""

__all__: list[str] = []
