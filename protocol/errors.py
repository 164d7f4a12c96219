"""Errors in a peer's bytes.

    WireError
        TruncatedError         the bytes end before the field does
        MalformedFieldError    an invalid length, count or number, or text that is not UTF-8
        OversizedError         a part that must be buffered exceeds its limit, or has too many elements
        UnknownVersionError    the layout of this version is not known

`protocol` raises no other exception on a peer's bytes; any other one is a bug.
"""


class WireError(ValueError):
    """A peer's bytes violate the protocol; its connection must be closed."""


class TruncatedError(WireError):
    """The bytes end within a field: an error in a complete frame; if only a part of it has arrived, more are needed."""


class MalformedFieldError(WireError):
    """A field has an invalid length, count or number, or its text is not UTF-8."""


class OversizedError(WireError):
    """A part of a message that must be kept in memory exceeds its limit, in bytes or elements."""


class UnknownVersionError(WireError):
    """`protocol` does not know the layout of this version of an API."""
