"""Frames written as hexadecimal digits."""


def hex_framed(*parts: str) -> bytes:
    """The frame of these parts, with its length in front."""
    raw = bytes.fromhex("".join(parts))
    return len(raw).to_bytes(4, "big") + raw
