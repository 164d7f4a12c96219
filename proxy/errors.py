"""What the proxy can fail with, before it serves or when it is told to change.

    SluiceError             anything this program reports in one line, without a traceback
    ├── UsageError          arguments that do not say enough, or contradict each other: exit code 2
    ├── ConfigError         a configuration or quotas file that cannot be: its key path and the value
    ├── StartError          the configuration is right and the machine refuses: a port in use
    └── ServerError         a server refuses a request, or does not respond: `sluice quotas`

A peer's wrong bytes are `protocol.errors.WireError`, and end one connection; nothing here ends a connection.
"""

import os
from typing import Final

VALUE_CHARACTERS_MAX: Final = 80
_TIMED_OUT: Final = ("", "timed out")  # asyncio's words, and the socket module's; the system's say more


class SluiceError(Exception):
    """An expected failure: its text is one line for the person who runs Sluice."""


class UsageError(SluiceError):
    """Arguments that do not say enough, or contradict each other."""


class ConfigError(SluiceError):
    """A configuration that cannot be.

    Args:
        path: where it is wrong, as `listeners[0].bootstrap_port`; or the file that cannot be read.
        problem: what is wrong with it.
        value: what stands there, when something does.
    """

    def __init__(self, path: str, problem: str, value: object = None) -> None:
        self.path = path
        self.problem = problem
        self.value = value
        shown = "" if value is None else f" (got {shorten(value)})"
        super().__init__(f"{path}: {problem}{shown}")


class StartError(SluiceError):
    """The configuration is right, and the machine does not let Sluice start."""


class ServerError(SluiceError):
    """A server refuses a request, or does not respond."""


def shorten(value: object) -> str:
    """Write a value as in Python, in one line of bounded length; of what cannot be written, its type.

    >>> shorten("a" * 100)[-5:], shorten(10**5000)
    ('aa...', '(a value of type int)')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # of too many digits, or nested too deeply
        text = f"(a value of type {type(value).__name__})"
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."


def reason(error: BaseException, seconds: float | None = None) -> str:
    """Say why something failed; of an error without words its name, and of a timeout how long it was.

    Args:
        seconds: how long a response was waited for.

    >>> reason(TimeoutError(), 5.0), reason(OSError("no route"), 5.0), reason(EOFError())
    ('no response within 5 s', 'no route', 'EOFError')
    """
    if isinstance(error, TimeoutError) and seconds is not None and str(error) in _TIMED_OUT:
        return f"no response within {seconds:g} s"
    return str(error) or type(error).__name__


def system_reason(error: OSError) -> str:
    """Say why the system refused something, in its own words: asyncio's name the address once more.

    >>> system_reason(OSError(98, "error while attempting to bind on address ('::1', 1): address already in use"))
    'Address already in use'
    """
    if error.errno is not None and error.errno > 0:  # of a name that does not resolve it is less
        return os.strerror(error.errno)
    return error.strerror or str(error)
