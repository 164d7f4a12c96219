"""What a replay can fail with; each is one line for whoever ran it, and exit code 2.

ReplayError
    CaptureError    what was to be read can not be: it names the file
    TargetError     the target can not be reached, or refuses what is needed
"""

__all__ = ["CaptureError", "ReplayError", "TargetError"]


class ReplayError(Exception):
    """A failure that its message explains."""


class CaptureError(ReplayError):
    """What was to be read can not be."""


class TargetError(ReplayError):
    """The target can not be reached, or refuses what is needed."""
