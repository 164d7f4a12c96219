"""The version of the installed distribution, for `sluice --version` and `sluice_build_info`."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "kafka-sluice"  # on the package index; the command is `sluice`
NOT_INSTALLED: Final = "0+checkout"


def sluice_version() -> str:
    """Return the installed version; for a checkout that was never installed, NOT_INSTALLED."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return NOT_INSTALLED
