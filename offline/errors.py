"""What the pipeline can fail with; each is one line for whoever ran it, and exit code 2.

OfflineError
+-- SetupError     this machine lacks something (Java, a package, a jar)
+-- InputError     what was to be read cannot be: it names the file or the row
+-- ApplyError     the quotas could not be brought to where they belong
"""

__all__ = ["ApplyError", "InputError", "OfflineError", "SetupError"]


class OfflineError(Exception):
    """A failure that its message explains."""


class SetupError(OfflineError):
    """This machine lacks something."""


class InputError(OfflineError):
    """What was to be read cannot be."""


class ApplyError(OfflineError):
    """The quotas could not be brought to where they belong."""
