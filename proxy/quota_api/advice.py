"""Messages of refused alterations: what is missing, and what to write into which file.

The message for a principal names no path, since a client without rights reads it.
"""

import json
from pathlib import Path

from proxy.channel import ANONYMOUS


def no_quotas_file(config: Path | None) -> str:
    """Return why quotas cannot be altered without a quotas file, and how to have one.

    >>> no_quotas_file(None)
    'no quotas file is configured, so quotas cannot be altered: start sluice serve with --quotas-file FILE'
    """
    problem = "no quotas file is configured, so quotas cannot be altered"
    if config is None:
        return f"{problem}: start sluice serve with --quotas-file FILE"
    return f'{problem}: write file = "quotas.toml" under [quotas] in {config}, and create that file'


def not_in_a_fleet() -> str:
    """Return why a member of a fleet does not alter its quotas file: the other members have files of their own."""
    return (
        'quotas are in a file at each member of the fleet ([quotas] store = "file"), so they cannot be altered through '
        'one of them: set store = "topic", or change the file at every member'
    )


def not_writable(path: Path, error: OSError) -> str:
    """Return why the quotas file cannot be replaced, and which directory has to be writable."""
    return (
        f"{path} cannot be written: {error.strerror or error}; it is replaced, not written into, so [quotas] file "
        "must be in a directory that Sluice may write to"
    )


def not_named(user: str, key: str) -> str:
    """Return how this user can get into `alter_principals` or `describe_principals`.

    An unauthenticated client is never advised to add ANONYMOUS: that would be every client.
    """
    if user in ("", ANONYMOUS):
        return (
            f"Log in as a user that {key} names, or connect on Sluice's own machine to a listener with "
            'bind = "127.0.0.1".'
        )
    return f"To allow it, add {json.dumps(user)} to {key} under [quotas] in Sluice's configuration file."
