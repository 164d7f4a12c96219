"""Names that others choose, made safe for a terminal."""

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Escape what is not printable.

    >>> printable("caf\u00e9 \x1b[2J")
    'café \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
