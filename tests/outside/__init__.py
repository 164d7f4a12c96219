"""`make outside`: other projects' own test suites, directly at a broker and through Sluice."""

__all__: list[str] = []
