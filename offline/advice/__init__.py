"""The recommended quotas: pure functions over the measurements of the stages; no Spark, no files."""

__all__: list[str] = []
