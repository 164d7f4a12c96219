"""The version of the installed distribution, for `sluice --version` and `sluice_build_info`."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "kafka-sluice"  # on the package index; the command is `sluice`
NOT_INSTALLED: Final = "0+checkout"


def sluice_version() -> str:
    """Give the installed version; a checkout that was never installed has none of its own."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return NOT_INSTALLED
