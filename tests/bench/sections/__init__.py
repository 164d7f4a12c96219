"""One module a section of the benchmark; each has `run(stage) -> Outcome` and measures on fresh processes."""

__all__: list[str] = []
