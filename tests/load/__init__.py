"""`make load`: the load test, a replay of a synthetic capture, direct first and through Sluice second."""

__all__: list[str] = []
