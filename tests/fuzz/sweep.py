"""Every sample stretched at every place: what a fuzzer finds by luck, found in order.

    python -m tests.fuzz.sweep [API-KEY ...]

Each message of `samples` is written as a request and as a response, with every quota there is, with each of its places
written many times over and each form of count before it. What takes several times as long as the message itself is
written once more, as large as it gets, and shown if that takes too long. Takes a quarter of an hour, and no Atheris.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final

from protocol.api import API_NAMES, flexible
from tests.fuzz import stopwatch
from tests.fuzz.samples import Sample, samples
from tests.fuzz.seeds import CONFIGURATIONS, asked, responded
from tests.fuzz.targets import TARGETS

_SOME: Final = 0xFF  # 5992 times
_MANY: Final = 0x92  # a megabyte of nearly everything
_SLOW_SECONDS: Final = 0.0003
_SIZES: Final = (1, 2, 3, 4, 8, 12, 16, 24)
_FORMS: Final = (0, 1, 2, 3, 7)  # the counts; lengths in bytes are skipped at once wherever they stand
_LOOKED_AT: Final = 2
_CONFIGURATIONS: Final = CONFIGURATIONS[1:3]
_STRETCHED: Final = 1
_OWN_TAGS: Final = 4


def _stretches(body: bytes) -> Iterator[tuple[int, int, int]]:
    """Where, how many bytes, which form of count."""
    for at in range(len(body) + 1):
        where = -(-(at << 16) // (len(body) + 1))
        for form in _FORMS:
            for size in _SIZES if form != 7 else (1,):
                yield min(where, 0xFFFF), size, form


def _how(where: int, size: int, often: int, form: int) -> bytes:
    return struct.pack(">HBBB", where, size, often, form)


def _sweep(target: str, make: Callable[[bytes, Sample, bytes], bytes], body: bytes, one: Sample) -> None:
    run, bound = TARGETS[target].run, TARGETS[target].bound_seconds
    for configuration in _CONFIGURATIONS:
        slow: dict[str, list[tuple[float, bytes]]] = {}
        for where, size, form in _stretches(body):
            found = stopwatch.slowest(
                run, make(configuration, one, _how(where, size, _SOME, form)), exactly=False
            )
            if found.seconds > _SLOW_SECONDS:
                kept = slow.setdefault(found.label, [])
                kept.append((found.seconds, _how(where, size, _MANY, form)))
                kept.sort(reverse=True)
                del kept[_LOOKED_AT:]
        for kept in slow.values():
            inputs = [make(configuration, one, how) for _, how in kept]
            found, data = max(
                ((stopwatch.confirm(run, data, bound), data) for data in inputs),
                key=lambda pair: pair[0].seconds,
            )
            if found.label:
                print(f"{target} {found.label}: {found.seconds * 1000:.1f} ms, {data.hex()}", flush=True)


def main() -> None:
    """Sweep over all samples."""
    keys = {int(word) for word in sys.argv[1:]}
    for one in samples():
        if keys and one.key not in keys:
            continue
        print(f"{API_NAMES[one.key]} version {one.version}", flush=True)
        tags = b"\0" * flexible(one.key, one.version)
        _sweep("requests", lambda *made: asked(0, *made), tags + one.request, one)
        _sweep("answers", lambda *made: responded(0, *made), one.response, one)


if __name__ == "__main__":
    main()
