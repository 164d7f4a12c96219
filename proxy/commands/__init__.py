"""The subcommands of `sluice`, one per module: `run(options) -> exit code`."""

__all__: list[str] = []
