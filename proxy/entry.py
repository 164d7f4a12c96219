"""The console script `sluice`: Ctrl-C ends it without a traceback, even while its modules are being loaded."""

from commandline.exit_codes import INTERRUPTED

__all__ = ["main"]


def main() -> int:
    """Load the command line and run it."""
    try:
        from proxy.cli import main as run
    except KeyboardInterrupt:
        return INTERRUPTED
    return run()
