"""`python -m offline` runs `sluice-offline`."""

from offline.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
