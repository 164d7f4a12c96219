"""One module for each stage: read, transform, write. `offline.cli` calls each module's `run(spark, ...)`."""

__all__: list[str] = []
