"""Responses that are kept whole and replaced by the result of a function of `protocol`, in a gateway."""

from collections.abc import Callable
from typing import Any

from proxy.channel.bounds import RESPONSE_BYTES_MAX
from proxy.channel.direction import ChannelDirection, copied
from proxy.channel.in_flight import Buffer, Entry, Owed
from proxy.channel.settings import ChannelSettings


class Rewritten(Owed):
    """Replaces a response by `rewrite(frame, version, *given(settings))`.

    Args:
        key: the API key, for the longest frame that is kept.
        arguments: returns the function's further arguments from the channel's settings; None for no arguments.
    """

    __slots__ = ("_arguments", "_key", "_rewrite")

    def __init__(
        self,
        key: int,
        rewrite: Callable[..., bytes],
        arguments: Callable[[ChannelSettings], tuple[Any, ...]] | None = None,
    ) -> None:
        self._key = key
        self._rewrite = rewrite
        self._arguments = arguments

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Replace the response once it is complete."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, RESPONSE_BYTES_MAX[self._key]):
            return direction.verdict.order
        arguments = () if self._arguments is None else self._arguments(direction.state.settings)
        rewritten = direction.parse(self._rewrite, copied(buf, pos, pos + 4 + length), entry[1], *arguments)
        return direction.verdict.order if rewritten is None else direction.replace(length + 4, rewritten)
