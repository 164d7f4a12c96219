"""The errors of the proxy: before it serves, and at a reload.

    SluiceError             an error that is reported in one line, without a traceback
    ├── UsageError          missing or contradictory arguments: exit code 2
    ├── ConfigError         an invalid configuration or quotas file, with the key path and the value
    ├── StartError          the configuration is valid, and the machine prevents the start: a port in use
    └── ServerError         a server refuses a request, or does not respond: `sluice quotas`

A peer's wrong bytes are `protocol.errors.WireError`, and end one connection; nothing here ends a connection.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Final

VALUE_CHARACTERS_MAX: Final = 80
_TIMED_OUT: Final = ("", "timed out")  # asyncio's words, and the socket module's; the system's say more


class SluiceError(Exception):
    """An expected failure, with a message of one line for the operator."""


class UsageError(SluiceError):
    """Missing or contradictory arguments."""


class ConfigError(SluiceError):
    """A configuration, or a file that it names, is invalid.

    Args:
        path: where it is wrong, as `listeners[0].bootstrap_port`; or the file that cannot be read.
        problem: what is wrong with it.
        value: the invalid value, if there is one.
    """

    def __init__(self, path: str, problem: str, value: object = None) -> None:
        self.path = path
        self.problem = problem
        self.value = value
        shown = "" if value is None else f" (got {shorten(value)})"
        super().__init__(f"{path}: {problem}{shown}")


class StartError(SluiceError):
    """The configuration is valid, but this machine prevents the start, as by a port in use."""


class ServerError(SluiceError):
    """A server to which Sluice sends a request refuses it, or does not respond."""


def shorten(value: object) -> str:
    """Return a value's `repr` in one line of bounded length; the name of its type if it has no `repr`.

    >>> shorten("a" * 100)[-5:], shorten(10**5000)
    ('aa...', '(a value of type int)')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # of too many digits, or nested too deeply
        text = f"(a value of type {type(value).__name__})"
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."


def reason(error: BaseException, seconds: float | None = None) -> str:
    """Return the message of an error; the name of its class if it has none.

    Args:
        seconds: the length of the timeout, for a TimeoutError without a message of its own; None: not known.

    >>> reason(TimeoutError(), 5.0), reason(OSError("no route"), 5.0), reason(EOFError())
    ('no response within 5 s', 'no route', 'EOFError')
    """
    if isinstance(error, TimeoutError) and seconds is not None and str(error) in _TIMED_OUT:
        return f"no response within {seconds:g} s"
    return str(error) or type(error).__name__


def system_reason(error: OSError) -> str:
    """Return the operating system's message for an error, since asyncio's own one repeats the address.

    >>> system_reason(OSError(98, "error while attempting to bind on address ('::1', 1): address already in use"))
    'Address already in use'
    """
    if error.errno is not None and error.errno > 0:  # of a name that does not resolve it is less
        return os.strerror(error.errno)
    return error.strerror or str(error)


DISTRIBUTION: Final = "kafka-sluice"  # on the package index; the command is `sluice`
NOT_INSTALLED: Final = "0+checkout"


def sluice_version() -> str:
    """Return the installed version of Sluice; NOT_INSTALLED for a source tree that was never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return NOT_INSTALLED
