"""Answers that are kept whole, and replaced by what a function of the protocol makes of them (a gateway's)."""

from collections.abc import Callable
from typing import Any

from proxy.channel.bounds import RESPONSE_BYTES_MAX
from proxy.channel.in_flight import Buffer
from proxy.channel.side import Side, copied

__all__ = ["whole_answer"]


def whole_answer(
    side: Side, buf: Buffer, pos: int, end: int, key: int, rewrite: Callable[..., bytes], *arguments: Any
) -> int:
    """Put what `rewrite(frame, *arguments)` makes of the answer at `pos` in its place, once it is all here."""
    length = side.frame_bytes - 4
    if not side.whole(end - pos, length, RESPONSE_BYTES_MAX[key]):
        return side.verdict.order
    rewritten = side.parse(rewrite, copied(buf, pos, pos + 4 + length), *arguments)
    return side.verdict.order if rewritten is None else side.replace(length + 4, rewritten)
