"""What can be wrong with a peer's bytes: one exception a way.

WireError
    TruncatedError        the bytes end before the field does
    MalformedFieldError   a length, count or number that cannot be, or text that is not UTF-8
    OversizedError        a part that must be kept whole is larger than the limit, or an array or a tag section longer
    UnknownVersionError   the layout of this version is not known here

Nothing in `protocol` raises anything else on a peer's bytes; any other exception from here is a bug of ours.
"""


class WireError(ValueError):
    """A peer's bytes are not what the protocol says; the connection they came on cannot go on."""


class TruncatedError(WireError):
    """The bytes end before the field does: an error in a whole frame, a reason to wait in a part of one."""


class MalformedFieldError(WireError):
    """A length, count or number that cannot be, or text that is not UTF-8."""


class OversizedError(WireError):
    """A part that must be kept whole is larger than the limit, or has more elements than any reader takes."""


class UnknownVersionError(WireError):
    """The layout of this version is not known here, so nothing in it can be found."""
