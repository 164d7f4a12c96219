"""One SASL exchange: kafka-python's mechanisms, which know no connection and no clock.

Two things are added to the library's SCRAM: a name with a comma or an equals sign is escaped (RFC 5802, section 5.1),
and a challenge of fewer iterations than Kafka's own clients accept is refused, since it would make the password cheap
to guess for a server that poses as a broker. The library itself refuses more than a million.
"""

import re
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism

from kafka_client.errors import LoginError

__all__ = ["Exchange"]

_ITERATIONS_MIN: Final = 4096  # as in Kafka's ScramMechanism
# The library takes the last of several numbers of iterations, so there may be one only.
_CHALLENGE: Final = re.compile(rb"r=[^,]*,s=[^,]*,i=([0-9]{1,9})(?:,[^i,][^,]*)*")


class Exchange:
    """The client's side of an exchange. Its methods may take long (SCRAM hashes), and are called in a thread.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        host: the name of the broker.
    """

    def __init__(self, mechanism: str, username: str, password: str, host: str) -> None:
        self._mechanism = mechanism
        self._challenge_expected = mechanism.startswith("SCRAM-")
        if self._challenge_expected:
            username = username.replace("=", "=3D").replace(",", "=2C")
        self._library: Any = get_sasl_mechanism(mechanism)(
            host=host,
            sasl_mechanism=mechanism,
            sasl_plain_username=username,
            sasl_plain_password=password,
        )

    def token(self) -> bytes:
        """Return the next token for the broker."""
        token: bytes = self._library.auth_bytes()
        return token

    def receive(self, token: bytes) -> bool:
        """Take the broker's token; return whether the exchange has ended.

        Raises:
            LoginError: the token is malformed, or proves that this is not the broker.
        """
        try:
            if self._challenge_expected:
                _check_challenge(token)
                self._challenge_expected = False
            self._library.receive(token)
        except (ValueError, KeyError) as error:
            raise LoginError(f"the broker's {self._mechanism} message is wrong: {error}") from None
        if not self._library.is_done():
            return False
        if not self._library.is_authenticated():
            raise LoginError(f"the broker's {self._mechanism} message is wrong")
        return True


def _check_challenge(challenge: bytes) -> None:
    """Refuse a SCRAM challenge of too few iterations.

    Raises:
        ValueError: it is such a challenge, or none.
    """
    found = _CHALLENGE.fullmatch(challenge)
    if found is None:
        raise ValueError("not a challenge")
    if int(found[1]) < _ITERATIONS_MIN:
        raise ValueError(f"{int(found[1])} iterations, at least {_ITERATIONS_MIN} are required")
