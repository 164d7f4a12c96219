"""The subcommands of `sluice`, one a module: `run(options) -> exit code`."""

__all__: list[str] = []
