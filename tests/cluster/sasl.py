"""Listeners on which brokers ask for SASL: PLAIN, SCRAM, OAUTHBEARER with unsecured tokens, delegation tokens.

SASL asks once, REAUTH again and again (KIP-368). Every user has a password that shows it is one.
"""

import json
import time
from base64 import urlsafe_b64encode
from typing import Final

from tests.cluster.options import Listener

SASL: Final = "SASL"
REAUTH: Final = "REAUTH"
REAUTH_SECONDS: Final = 3
USERS: Final = ("alice", "bob", "sluice", "admin", "reports")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_MODULES: Final = "org.apache.kafka.common.security"


def password(user: str) -> str:
    """Return a user's password.

    >>> password("alice")
    'alice-secret-12'
    """
    return f"{user}-secret-12"


def bearer_token(user: str, ends_in_seconds: int = 3600) -> str:
    """Return an unsecured token of a user, as these brokers take them."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now - 60, "exp": now + ends_in_seconds})
    return "".join(f"{urlsafe_b64encode(json.dumps(part).encode()).rstrip(b'=').decode()}." for part in parts)


def client_properties(user: str) -> str:
    """Return a file for Kafka's own tools, which log in by PLAIN."""
    jaas = f'{_MODULES}.plain.PlainLoginModule required username="{user}" password="{password(user)}";'
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"


def _properties(reauth_ms: int = 0) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password(user)}"' for user in USERS)
    found = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
        "scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
    }
    if reauth_ms:
        found |= {f"{name.lower()}.connections.max.reauth.ms": str(reauth_ms) for name in MECHANISMS}
    return found


SASL_LISTENERS: Final = (
    Listener(SASL, protocol="SASL_PLAINTEXT", properties=_properties()),
    Listener(REAUTH, protocol="SASL_PLAINTEXT", properties=_properties(1000 * REAUTH_SECONDS)),
)
# Sluice's own, as keys of `[cluster]`.
SLUICE_LOGIN: Final = {
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "sluice",
    "password": password("sluice"),
}
SASL_PROPERTIES: Final = {"delegation.token.secret.key": "only-for-tests"}
SASL_USERS: Final = tuple(
    word
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for user in USERS
    for word in ("--add-scram", f"{mechanism}=[name={user},password={password(user)}]")
)
