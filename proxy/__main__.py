"""`python -m proxy` is `sluice`."""

import sys

from proxy.entry import main

if __name__ == "__main__":
    sys.exit(main())
