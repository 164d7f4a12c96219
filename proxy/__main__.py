"""`python -m proxy` is `sluice`."""

import sys

# ----------------------------------------------------------------------------------------------------
# The console script `sluice`: Ctrl-C ends it without a traceback, even while its modules are being loaded.


def main() -> int:
    """Run the command that the arguments of the process name; return its exit code."""
    try:
        from proxy.system import compiled

        compiled.install()
        from proxy.cli import main as run
    except KeyboardInterrupt:
        from commandline.program import INTERRUPTED

        return INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
