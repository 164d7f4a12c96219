"""What the pipeline can fail with; each is one line on standard error, and exit code 1.

OfflineError
+-- SetupError     this machine lacks something (Java, a package, a jar)
+-- InputError     what was to be read cannot be: it names the file or the row
+-- ApplyError     the quotas could not be brought to where they belong
"""

from typing import Final

__all__ = ["ApplyError", "InputError", "OfflineError", "SetupError", "reason"]

_CHARACTERS_MAX: Final = 500


class OfflineError(Exception):
    """A failure that its message explains."""


class SetupError(OfflineError):
    """This machine lacks something."""


class InputError(OfflineError):
    """What was to be read cannot be."""


class ApplyError(OfflineError):
    """The quotas could not be brought to where they belong."""


def reason(error: Exception) -> str:
    r"""The line that says why something of Spark's has failed: py4j's first one says only which of its calls did.

    >>> text = "An error occurred while calling o184.collectToPython.\n: org.apache.spark.SparkException: no\n  at x"
    >>> reason(RuntimeError(text))
    'org.apache.spark.SparkException: no'
    """
    lines = [line.removeprefix(": ") for line in str(error).strip().splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (told or [type(error).__name__])[0][:_CHARACTERS_MAX]
