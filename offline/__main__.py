"""`python -m offline`: the same as `sluice-offline`."""

from offline.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
