"""Responses that are in a worker's memory once, although many clients wait to read them.

A description of 50,000 quotas is 6 MB, for a request of 20 bytes. Control makes it once for equal requests
(`proxy.quota_api.responses`), but each crosses the link by itself: so one that equals a response that is not yet
read is replaced by that one.
"""

from typing import Final
from weakref import WeakSet

from proxy.channel import SharedResponse

_SHARED_BYTES_MIN: Final = 64 * 1024
_COMPARED_MAX: Final = 8
_HEAD_BYTES: Final = 8  # length and correlation id


class _Rest(bytearray):
    """The bytes after the head; unlike `bytes` they support weak references."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # compared by identity in the set


class SharedResponses:
    """The large responses that clients have yet to read."""

    def __init__(self) -> None:
        self._rests: WeakSet[_Rest] = WeakSet()

    def shared(self, frame: bytes) -> bytes | SharedResponse:
        """Return a response to send: the same, or one whose rest is in memory already."""
        if len(frame) < _SHARED_BYTES_MIN:
            return frame
        view = memoryview(frame)
        for known in list(self._rests)[:_COMPARED_MAX]:
            if memoryview(known) == view[_HEAD_BYTES:]:
                return SharedResponse(frame[:_HEAD_BYTES], memoryview(known).toreadonly())
        rest = _Rest(view[_HEAD_BYTES:])
        self._rests.add(rest)
        return SharedResponse(frame[:_HEAD_BYTES], memoryview(rest).toreadonly())
