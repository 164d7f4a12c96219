"""The limit of open descriptors: each connection needs two; the soft limit is often 1024. Workers inherit it."""

import resource
from typing import Final

from proxy.errors import StartError

_WANTED: Final = 65_536


def raise_limit() -> None:
    """Raise the soft limit as far as the hard limit allows.

    Raises:
        StartError: the system refuses it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, _WANTED)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            raise StartError(f"descriptor limit: {soft} cannot be raised to {wanted}: {error}") from error
