"""Work on one frame that would hold the loop too long, given to the shell to be done beside it.

A handler that has a whole frame asks its side for what a pure function makes of it::

    read = side.parse(fetch.read_whole, frame, fields_at, version)
    if read is None:
        return side.verdict.order

A frame of at most AT_ONCE_BYTES_MAX is parsed in that call. A larger one becomes the side's `job`, with the order
WAIT: the shell takes the job, runs it in another thread, and shows the same bytes again; then the same call gives what
the function gave, or raises what it raised. Until then nothing behind the frame is handled.

So a handler does nothing that may not be done twice before `parse` has given a result. The function is one of a module
(no lambda, no bound method made for the call), gives no None, and depends on its arguments alone, which are not
changed meanwhile. A result belongs to exactly these arguments: where the handler comes to ask for something else, it
is lost, and never taken for another frame's.

AGAIN stands in a job's place where a walk has done enough for one turn of the loop: the shell shows the rest again in
the next one (`Side.next_turn`).
"""

from collections.abc import Callable
from typing import Any, Final

__all__ = ["AGAIN", "AT_ONCE_BYTES_MAX", "Job"]

# The smallest elements have two or three bytes, and one costs up to 0.5 us: at most about 3 ms.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


# A frame that is parsed takes so many times the memory of its bytes: four bytes may become a tuple of two.
_PARSED_TIMES: Final = 24


class Job:
    """One function and its arguments, and in the end its result.

    Attributes:
        done: it has been run. Set by the thread that runs it, as its last step.
    """

    __slots__ = ("_arguments", "_error", "_function", "_result", "done")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._result: Any = None
        self._error: Exception | None = None
        self.done = False

    def is_of(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
        """Whether it is this function with these arguments."""
        return self._function is function and self._arguments == arguments

    @property
    def kept_bytes(self) -> int:
        """What it takes in memory: the frame, its first argument; once it is done, what became of it too."""
        size = sum(len(argument) for argument in self._arguments if isinstance(argument, bytes))
        return size * (1 + _PARSED_TIMES) if self.done else size

    def run(self) -> None:
        """Run the function, in whatever thread; nothing is raised."""
        try:
            self._result = self._function(*self._arguments)
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        self.done = True

    def result(self) -> Any:
        """Give what the function has given.

        Raises:
            Exception: the function raised it: a WireError, if it is not a bug.
        """
        if self._error is not None:
            raise self._error
        return self._result


def _nothing() -> None:
    """Nothing is to be done but to come back."""


AGAIN: Final = Job(_nothing, ())
