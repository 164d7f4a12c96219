"""`python -m offline` and the console script `sluice-offline`.

Ctrl-C ends it without a traceback, even while its modules are being loaded.
"""


def main() -> int:
    """Run `sluice-offline` and return its exit code; its modules are loaded here, so that Ctrl-C can end that too."""
    try:
        from offline.cli import main as run
    except KeyboardInterrupt:
        from commandline.program import INTERRUPTED

        return INTERRUPTED
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
