"""What the quotas should be: pure functions over what the stages have measured; no Spark, no files."""

__all__: list[str] = []
