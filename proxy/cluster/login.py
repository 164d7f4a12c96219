"""`[cluster] sasl_mechanism`: the configured login of Sluice's own connections.

Not for clients' connections: clients authenticate with the broker themselves, through the proxy.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafka_client import Login, LoginError
from proxy.config import ClusterOptions
from proxy.system.files import read

_PASSWORD_BYTES_MAX: Final = 64 * 1024


def login_of(options: ClusterOptions) -> Login | None:
    """Return the login that `[cluster]` configures; None if it configures none."""
    if not options.sasl_mechanism:
        return None
    if options.password or options.password_file is None:  # GSSAPI and AWS_MSK_IAM have neither
        return Login(options.sasl_mechanism, options.username, options.password)
    return Login(options.sasl_mechanism, options.username, secret_of(options))


def secret_of(options: ClusterOptions) -> Callable[[], str]:
    """Return the function that reads the password now in force; it raises LoginError."""
    path = options.password_file
    if options.password or path is None:
        return lambda: options.password
    return lambda: password_of(path)


def password_of(path: Path) -> str:
    """Read a password from its file.

    Raises:
        LoginError: the file contains no password.
    """
    try:
        password = read(path, _PASSWORD_BYTES_MAX).decode().rstrip("\r\n")
    except OSError as error:
        raise LoginError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise LoginError(f"{path}: is not UTF-8") from None
    if not password:
        raise LoginError(f"{path}: is empty")
    return password
