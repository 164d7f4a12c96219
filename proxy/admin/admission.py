"""Who may ask the admin port for pages: a client with a token or a certificate (`admin.token_file`, `[admin.tls]`).

| `admin.tls.client_auth` | without `token_file` | with `token_file` |
|---|---|---|
| `none` | every client | a token |
| `requested` | every client | a token or a certificate |
| `required` | a certificate | a token and a certificate |

The probes need neither: kubelets and load balancers have none. `/readyz` also says why a process is not ready.
Refusals are counted, and few of them logged; a token is never logged.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

from proxy.admin.http import RefusedError, Request
from proxy.admin.streams import Pace
from proxy.system.logs import event
from proxy.system.tokens import Tokens

logger = logging.getLogger(__name__)

PROBES: Final = ("/healthz", "/readyz")
LOG_SECONDS: Final = 10.0  # between two lines of one reason
TOKEN_GAP_SECONDS: Final = 0.005  # between two wrong tokens, of all clients together
_NO_TOKEN: Final = "a token is needed: Authorization: Bearer TOKEN (admin.token_file)"
_WRONG_TOKEN: Final = "wrong token: it is not in admin.token_file"
_NO_CERTIFICATE: Final = "a client certificate is needed (admin.tls.client_auth)"


class Admission:
    """Decides whether a client may have a page, and counts what the port refuses.

    Args:
        tokens: the accepted tokens; None if no token is needed.
        client_auth: the key `admin.tls.client_auth`.
        refused: the counters of refusals, by reason.
    """

    def __init__(
        self, tokens: Tokens | None = None, client_auth: str = "none", refused: Counter[str] | None = None
    ) -> None:
        self._tokens = tokens
        self._client_auth = client_auth
        self._refused: Counter[str] = Counter() if refused is None else refused
        # By reason: when the last line was logged, in seconds of the loop's clock, and the count at that time.
        self._logged: dict[str, tuple[float, int]] = {}
        self._pace = Pace(TOKEN_GAP_SECONDS)

    async def check(self, request: Request, *, certificate: bool) -> None:
        """Check that a client may have the page that it asks for.

        Args:
            certificate: whether the client has shown a trusted certificate.

        Raises:
            RefusedError: it may not; after its turn, so that tokens cannot be tried at any rate.
        """
        if request.path in PROBES:
            return
        if self._client_auth == "required" and not certificate:
            raise RefusedError(403, _NO_CERTIFICATE, "no_certificate")
        if self._tokens is None or (self._client_auth == "requested" and certificate):
            return
        scheme, _, token = request.authorization.partition(" ")
        is_bearer = scheme.lower() == "bearer"
        if is_bearer and self._tokens.have(token.strip()):
            return
        await self._pace.turn()
        if is_bearer:
            raise RefusedError(401, _WRONG_TOKEN, "wrong_token")
        raise RefusedError(401, _NO_TOKEN, "no_token")

    def note(self, reason: str, peer: str, problem: str) -> None:
        """Count a refusal, and log it unless one with the same reason was logged in the last LOG_SECONDS.

        Args:
            reason: one of few words.
            peer: the client's IP address.
            problem: a sentence.
        """
        self._refused[reason] += 1
        now, count = asyncio.get_running_loop().time(), self._refused[reason]
        at, before = self._logged.get(reason, (now - LOG_SECONDS, 0))
        if now - at < LOG_SECONDS:
            return
        self._logged[reason] = now, count
        event(
            logger,
            logging.WARNING,
            "the admin port has refused a client",
            reason=reason,
            peer=peer,
            problem=problem,
            refused=count - before,
        )
