"""One module a stage: read, transform, write; `run(spark, ...)` each. Who calls them is `offline.cli`."""

__all__: list[str] = []
