"""Responses that are kept whole and replaced by the result of a function of `protocol`, in a gateway."""

from collections.abc import Callable
from typing import Any

from proxy.channel.bounds import RESPONSE_BYTES_MAX
from proxy.channel.in_flight import Buffer, Entry, Owed
from proxy.channel.settings import ChannelSettings
from proxy.channel.side import Side, copied

__all__ = ["Rewritten"]


class Rewritten(Owed):
    """Replaces a response by `rewrite(frame, version, *given(settings))`.

    Args:
        key: the API key, for the longest frame that is kept.
        given: returns the function's arguments from the channel's settings; None for no arguments.
    """

    __slots__ = ("_given", "_key", "_rewrite")

    def __init__(
        self, key: int, rewrite: Callable[..., bytes], given: Callable[[ChannelSettings], Any] | None = None
    ) -> None:
        self._key = key
        self._rewrite = rewrite
        self._given = given

    def respond(self, side: Side, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:  # noqa: ARG002 - see Owed
        """Replace the response once it is complete."""
        length = side.frame_bytes - 4
        if not side.whole(end - pos, length, RESPONSE_BYTES_MAX[self._key]):
            return side.verdict.order
        given = () if self._given is None else (self._given(side.state.settings),)
        rewritten = side.parse(self._rewrite, copied(buf, pos, pos + 4 + length), entry[1], *given)
        return side.verdict.order if rewritten is None else side.replace(length + 4, rewritten)
