"""The errors of a request to a broker.

OSError             the broker cannot be reached, or the connection breaks
└── ClosedError     the broker closed the connection instead of sending a response
TimeoutError        the caller's deadline has passed
RefusedError        the broker responds with one error to the whole request
LoginError          the broker does not accept the credentials, or there are none
WireError           what came back is not a response to the request (`protocol.errors`)
"""

from typing import Final

from protocol.errors import WireError

__all__ = ["ASKING_FAILS", "ClosedError", "LoginError", "RefusedError"]


class ClosedError(ConnectionError):
    """The broker closed the connection instead of sending a response."""

    def __init__(self) -> None:
        super().__init__(
            "closed the connection without a response, as a broker that requires SASL or TLS does"
        )


class RefusedError(Exception):
    """The broker responds with one error to the whole request; the text is the broker's."""


class LoginError(Exception):
    """The broker does not accept the credentials, or there are none."""


ASKING_FAILS: Final = (OSError, WireError, LoginError, TimeoutError)
"""All of the above except RefusedError, which is a response."""
