"""Parses one large frame in a thread of the shell, so that the loop is not blocked.

A handler with a whole frame asks its direction for the result of a pure function::

    read = direction.parse(fetch.read_whole, frame, fields_at, version)
    if read is None:
        return direction.verdict.order

A frame of at most AT_ONCE_BYTES_MAX is parsed in this call. A larger one becomes the direction's `job`, with the order
WAIT: the shell takes the job, runs it in a thread, and passes the same bytes again; then the same call returns the
function's result, or raises its exception. Until then nothing after the frame is handled.

Before `parse` returns a result, a handler must only take steps that can be repeated. The function must belong to a
module (no lambda, no bound method made for the call), must not return None, and depends on its arguments only, which do
not change meanwhile. A result belongs to exactly these arguments: if the handler asks for something else, the result is
discarded, and never used for another frame.

AGAIN takes the place of a job if a walk has used its share of a turn of the loop: the shell passes the rest again in
the next turn (`ChannelDirection.next_turn`).

Non-obvious:

- A large request is shown twice. The first time its handler orders a function's result, and the direction waits; when
  the thread is done the same bytes are shown again, and the same call returns the result. So nothing may be charged
  before it (`ChannelDirection.parse`), and a result belongs to exactly its bytes and arguments.
"""

from collections.abc import Callable
from typing import Any, Final

# The smallest elements have two or three bytes, and one costs up to 0.5 us: at most about 3 ms.
AT_ONCE_BYTES_MAX: Final = 16 * 1024


# The memory of a parsed frame in multiples of its bytes: four bytes may become a tuple of two.
_PARSED_TIMES: Final = 24


class Job:
    """One function with its arguments and, when it has run, its result.

    Attributes:
        done: whether it has run. Set last, by the thread that runs it.
    """

    __slots__ = ("_arguments", "_error", "_function", "_result", "done")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._result: Any = None
        self._error: Exception | None = None
        self.done = False

    def matches(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
        """Whether this is the job for this function and these arguments."""
        return self._function is function and self._arguments == arguments

    @property
    def kept_bytes(self) -> int:
        """The memory of the job: the frame, which is the first argument, and the result once it is done."""
        size = sum(len(argument) for argument in self._arguments if isinstance(argument, bytes))
        return size * (1 + _PARSED_TIMES) if self.done else size

    def run(self) -> None:
        """Run the function, in any thread; raises nothing."""
        try:
            self._result = self._function(*self._arguments)
        except Exception as error:  # noqa: BLE001 - raised by `result` instead
            self._error = error
        self.done = True

    def result(self) -> Any:
        """Return the function's result.

        Raises:
            Exception: the function raised it; a WireError, unless there is a bug.
        """
        if self._error is not None:
            raise self._error
        return self._result


def _nothing() -> None:
    """Do nothing: the job of AGAIN."""


AGAIN: Final = Job(_nothing, ())
