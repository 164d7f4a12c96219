"""The message about a missing package of one of Sluice's extras, with the command that installs it.

Each extra of pyproject.toml has a lock file of its name under requirements/, which holds what the proxy needs too.
"""

import shlex
import sys

__all__ = ["not_installed"]


def not_installed(package: str, extra: str) -> str:
    """Return the message that a package is missing, with the command that installs it from the checkout.

    Args:
        package: its name on the package index.
        extra: the extra of Sluice's that has it.
    """
    pip = f"{shlex.quote(sys.executable)} -m pip"
    return (
        f"{package} is not installed; in Sluice's checkout: {pip} install --require-hashes "
        f"-r requirements/{extra}.txt"
    )
