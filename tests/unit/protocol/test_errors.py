"""The tree of errors: one catch is enough at a connection's edge."""

from protocol import errors


def test_every_error_is_a_wire_error() -> None:
    children = {
        errors.TruncatedError,
        errors.MalformedFieldError,
        errors.OversizedError,
        errors.UnknownVersionError,
    }
    assert set(errors.WireError.__subclasses__()) == children
    assert issubclass(errors.WireError, ValueError)
