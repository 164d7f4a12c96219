"""`/v1/status`, `/v1/events` and `/v1/enforcement`: what this process is and what has happened (docs/api.md).

/v1/status                                                what runs, and whether quotas are enforced
/v1/events?after=12&limit=100                             the last events
POST /v1/enforcement?enforcing=false&reason=TEXT          switch all enforcement off, or on

The POST is the only page that changes something. It is for operators' commands, and no web page can send it: it needs
a header of its own, which a browser sends to another host only after a preflight request, and that is refused; a
request with any header that commands do not send is refused too, since a browser or a proxy has sent it. It has to come
from `[admin] actions_from`, and needs the token or the certificate that every page needs.
"""

import ipaddress
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Raw
from msgspec.structs import asdict, replace

from proxy.admin.http import Page, RefusedError, Request, fields_of, number
from proxy.admin.server import Handler, page, rows_page
from proxy.config import Config, Network
from proxy.control.enforcement import REASON_CHARACTERS_MAX, Enforcement
from proxy.events import Events
from proxy.events.kinds import By
from proxy.events.ring import iso_ms
from proxy.explain.documents import (
    EVENTS_MAX,
    EnforcementDocument,
    EventsDocument,
    Missing,
    StatusDocument,
    Switched,
)
from proxy.system.errors import sluice_version

ACTION: Final = "enforcement"  # the value of Sluice-Action
_EVENTS_DEFAULT: Final = 100
_ID_MAX: Final = 2**53 - 1  # what JavaScript's numbers hold exactly
_BY_CHARACTERS_MAX: Final = 100
_ENFORCING: Final = {"true": True, "false": False}


def status_of(
    config: Config, workers: int, *, enforcing: bool, ready: str, missing: tuple[Missing, ...]
) -> StatusDocument:
    """Return the document of `/v1/status` for a process with this configuration.

    Args:
        ready: why clients cannot be served; "" if they can.
        missing: the worker processes that cannot respond now.
    """
    quotas, fleet = config.quotas, config.fleet
    return StatusDocument(
        version=sluice_version(),
        member=fleet.own_name if fleet.configured else "",
        mode=quotas.mode,
        enforcing=enforcing,
        policy=quotas.policy,
        scope=quotas.scope,
        workers=workers,
        ready=ready,
        missing=missing,
    )


class State:
    """The pages `/v1/status`, `/v1/events` and `/v1/enforcement`.

    Args:
        status: returns the process's state now, without the fields that this class adds.
        history: the events of this start of the process.
        switch: switches enforcement.
        actions_from: the networks that a POST may come from.
    """

    def __init__(
        self,
        status: Callable[[], StatusDocument],
        history: Events,
        switch: Enforcement,
        actions_from: Collection[Network],
    ) -> None:
        self._status_now = status
        self._history = history
        self._switch = switch
        self._actions_from = actions_from
        self._started_at = iso_ms(time.time())

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of GET requests, by path."""
        return {"/v1/status": self._status, "/v1/events": self._events}

    def actions(self) -> Mapping[str, Handler]:
        """Return the handlers of POST requests, by path."""
        return {"/v1/enforcement": self._enforcement}

    async def _status(self, request: Request) -> Page:
        fields_of(request.query, ())
        return page(200, self._document())

    async def _events(self, request: Request) -> Page:
        fields = fields_of(request.query, ("after", "limit"))
        after = number(fields, "after", 0, _ID_MAX)
        limit = number(fields, "limit", 1, EVENTS_MAX) or _EVENTS_DEFAULT
        found = self._history.after(after, limit)
        now = self._status_now()
        document = EventsDocument(
            run=self._history.run,
            last=found.last,
            lost=found.lost,
            left_out=found.left_out,
            enforcing=now.enforcing,
            missing=now.missing,
        )
        return await rows_page(document, (Raw(one.encode()) for one in found.events))

    async def _enforcement(self, request: Request) -> Page:
        self._check(request)
        fields = fields_of(request.query, ("enforcing", "reason", "by"))
        enforcing = _ENFORCING.get(fields.get("enforcing", ""))
        if enforcing is None:
            raise RefusedError(400, "enforcing must be true or false")
        reason = fields.get("reason", "")
        if len(reason) > REASON_CHARACTERS_MAX:
            raise RefusedError(400, f"reason is longer than {REASON_CHARACTERS_MAX} characters")
        by = By(fields.get("by", "")[:_BY_CHARACTERS_MAX] or "the admin port", request.peer)
        changed = await self._switch.switch(enforcing=enforcing, by=by, why=reason)
        problem = self._switch.problem
        return page(
            200,
            EnforcementDocument(
                **asdict(self._document()), changed=changed, kept=not problem, problem=problem
            ),
        )

    def _check(self, request: Request) -> None:
        """Refuse a POST that no operator's command sends: one from elsewhere, or from a browser or proxy.

        Raises:
            RefusedError: the request comes from elsewhere.
        """
        if request.action != ACTION:
            raise RefusedError(403, f"the header Sluice-Action: {ACTION} is missing", "action")
        if request.relayed:
            raise RefusedError(403, f"not for browsers and proxies: {request.relayed} is refused", "action")
        if not _within(request.peer, self._actions_from):
            problem = f"{request.peer or 'this peer'} may not switch enforcement: see [admin] actions_from"
            raise RefusedError(403, problem, "action")

    def _document(self) -> StatusDocument:
        last, switched = self._switch.switched, None
        if last is not None:
            name, address = last.by
            switched = Switched(
                enforcing=last.enforcing, at=iso_ms(last.at), by=name, from_=address, reason=last.reason
            )
        return replace(self._status_now(), switched=switched, started_at=self._started_at)


def _within(peer: str, networks: Collection[Network]) -> bool:
    """Whether an address is in one of the networks.

    >>> _within("::ffff:127.0.0.1", [ipaddress.ip_network("127.0.0.0/8")]), _within("", [])
    (True, False)
    """
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)
