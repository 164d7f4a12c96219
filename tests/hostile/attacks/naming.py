"""Round the quota by another spelling of the same name: OAUTHBEARER tokens that brokers accept as alice's (RFC 6750).

The brokers' grammar of a token is b64token, with `~`, `+`, `/` and `=` at its end; what is no base64url is no matter in
a signature that the broker's validator decodes leniently.
"""

import base64
import json
from collections.abc import Callable
from typing import Final

from tests.hostile import wire
from tests.hostile.attacks.evasion import MEGABYTE, Evasion
from tests.hostile.scene import QUOTA, Scene, Stage, limits

_USER: Final = Stage(user_quotas={"alice": limits(QUOTA)}, client_quotas={})
_SIGNATURE: Final = "c2lnbmF0dXJlLW9mLXRoaXMtdG9rZW4"

Run = Callable[[Scene, str, float], None]


def token(signature: str, padding: str = "") -> str:
    """A token of alice's with such a signature; `padding` stands behind its payload."""
    parts = [{"alg": "RS256"}, {"sub": "alice", "iat": 1, "exp": 1 << 40}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((encoded[0], encoded[1] + padding, signature))


def as_alice(bearer: str, head: str = "n,,") -> Run:
    """Log in with a token, and produce 1 MB after 1 MB."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        with scene.connected(until) as client:
            client.ask(wire.sasl_handshake("OAUTHBEARER"))
            client.ask(wire.sasl_token(f"{head}\x01auth=Bearer {bearer}\x01\x01".encode()))
            request = wire.produce(client_id, bytes(MEGABYTE))
            while True:
                client.ask(request)

    return run


def _evasion(name: str, what: str, run: Run) -> Evasion:
    return Evasion(f"token-{name}", 15, f"OAUTHBEARER: {what}", "produce", MEGABYTE + 500, run, 1, _USER)


# One by one: they share alice's quota.
NAMING: Final = (
    _evasion("plain", "the token as it is (for comparison)", as_alice(token(_SIGNATURE))),
    _evasion("equals", "`=` behind its signature", as_alice(token(_SIGNATURE + "="))),
    _evasion("tilde", "`~` in its signature", as_alice(token("~" + _SIGNATURE))),
    _evasion("plus", "`+/` in its signature", as_alice(token("+/" + _SIGNATURE))),
    _evasion("authzid", "an authorization id of its own", as_alice(token(_SIGNATURE), "n,a=alice,")),
)
