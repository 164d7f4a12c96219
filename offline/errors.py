"""Errors of the pipeline and of a replay; each is one line on standard error, with exit code 1.

OfflineError
+-- SetupError     this machine lacks something (Java, a package, a jar)
+-- InputError     an input cannot be read; the message names the file or the row
+-- ApplyError     the quotas in force cannot be read, or not be changed

ReplayError
+-- CaptureError   a capture cannot be read; the message names the file
+-- TargetError    the target cannot be reached, or refuses a request
"""

from typing import Final

_CHARACTERS_MAX: Final = 500


class OfflineError(Exception):
    """Base of the pipeline's errors."""


class SetupError(OfflineError):
    """This machine lacks something that a stage needs: Java, a package, a jar."""


class InputError(OfflineError):
    """An input cannot be read; the message names the file or the row."""


class ApplyError(OfflineError):
    """The quotas in force cannot be read, or not be changed."""


def reason(error: Exception) -> str:
    r"""Return the line with the cause of a Spark failure; py4j's first line only names the failed call.

    >>> text = "An error occurred while calling o184.collectToPython.\n: org.apache.spark.SparkException: no\n  at x"
    >>> reason(RuntimeError(text))
    'org.apache.spark.SparkException: no'
    """
    lines = [line.removeprefix(": ") for line in str(error).strip().splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (told or [type(error).__name__])[0][:_CHARACTERS_MAX]


class ReplayError(Exception):
    """Base of a replay's errors."""


class CaptureError(ReplayError):
    """A capture cannot be read; the message names the file."""


class TargetError(ReplayError):
    """The target cannot be reached, or refuses a request."""
