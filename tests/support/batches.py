"""Record batches as bytes, of which only the header's length, magic and count are true (KIP-98)."""

import struct
from typing import Final

HEADER_BYTES: Final = 61


def batch(records: int, size: int, magic: int = 2) -> bytes:
    """A batch of `size` bytes in all that says it holds so many records."""
    assert size >= HEADER_BYTES, "no batch is smaller than its header"
    head = struct.pack(">qiib", 0, size - 12, 0, magic)
    return (head.ljust(57, b"\1") + struct.pack(">i", records)).ljust(size, b"\7")
