"""The console script `sluice-offline`: Ctrl-C ends it without a traceback, even while its modules are being loaded."""

__all__ = ["main"]


def main() -> int:
    """Load the command line and run it."""
    try:
        from offline.cli import main as run
    except KeyboardInterrupt:
        from commandline.exit_codes import INTERRUPTED

        return INTERRUPTED
    return run()
