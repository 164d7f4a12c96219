"""Frames written as hexadecimal digits, and the addresses that they name."""


def hex_framed(*parts: str) -> bytes:
    """The frame of these parts, with its length in front."""
    raw = bytes.fromhex("".join(parts))
    return len(raw).to_bytes(4, "big") + raw


def moved_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    """An address map for brokers at ab:9: broker N is at cde:19100 + N; brokers from 3 on are never named."""
    assert (host, port) == ("ab", 9)
    return ("cde", 19100 + node_id) if node_id < 3 else None
