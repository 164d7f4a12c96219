"""Errors of a replay; each is one line on standard error, with exit code 1.

ReplayError
    CaptureError    a capture cannot be read; the message names the file
    TargetError     the target cannot be reached, or refuses a request
"""

__all__ = ["CaptureError", "ReplayError", "TargetError"]


class ReplayError(Exception):
    """Base of a replay's errors."""


class CaptureError(ReplayError):
    """A capture cannot be read."""


class TargetError(ReplayError):
    """The target cannot be reached, or refuses a request."""
