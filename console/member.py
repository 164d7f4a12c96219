"""One member, asked over HTTP: bounded in time and bytes, and each document once for all pages that are open.

A member that does not respond, or with something that is not Sluice's JSON, is silent: it says since when and why, and
is asked again by `probe` alone, so that no page waits for it.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar

import httpx

from commandline.amounts import printable
from console.causes import missing_workers
from console.merging import bound
from proxy.explain.documents import (
    RESPONSE_BYTES_MAX,
    Document,
    DocumentError,
    FleetDocument,
    Refused,
    StatusDocument,
    decode,
)
from proxy.system.admin_access import AdminAccess, tls_problem
from proxy.system.logs import event

LOG: Final = logging.getLogger(__name__)
SECONDS_MAX: Final = 3.0  # for a response
LIST_SECONDS_MAX: Final = 15.0  # for 10,000 clients
_IDLE_SECONDS_MAX: Final = 5.0  # the admin port closes a connection after 10
_CACHED_MAX: Final = 64
_PARSED_HERE_MAX: Final = 64 * 1024  # a larger document is parsed in a thread
LACKS_SECONDS: Final = 30.0
_LOAD_MAX: Final = 0.05  # a document is asked for no more than this part of the time that it takes
_PROBLEM_CHARACTERS_MAX: Final = 200
_Value = TypeVar("_Value", bound=Document)


class MemberError(Exception):
    """A member does not respond, or its response is not a document of Sluice's `/v1`."""


class Look(NamedTuple, Generic[_Value]):
    """A request for a document of a member's `/v1`.

    Args:
        path: its path with the query.
        kind: the type that it is decoded into.
        age: how old, in seconds, a copy that was read earlier may be to be used instead.
        bytes_max: the longest accepted response.
        seconds_max: the longest time for the whole response.
    """

    path: str
    kind: type[_Value]
    age: float
    bytes_max: int = RESPONSE_BYTES_MAX
    seconds_max: float = SECONDS_MAX


@dataclass(slots=True)
class _Kept:
    """A document that was read; `value` is None where the member does not offer it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    at: float | None = None
    took: float = 0.0


def new_client(access: AdminAccess) -> httpx.AsyncClient:
    """Create the HTTP client for all members: no proxies from the environment, redirects or compressed responses."""
    return httpx.AsyncClient(
        verify=access.tls,
        trust_env=False,
        follow_redirects=False,
        headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "sluice-console"},
        limits=httpx.Limits(
            max_connections=256, max_keepalive_connections=128, keepalive_expiry=_IDLE_SECONDS_MAX
        ),
        timeout=httpx.Timeout(None),  # each request has a time for the whole of it
    )


class Member:
    """One Sluice whose admin port the console reads, with the last documents from it.

    A member is silent from a failed request until `probe` succeeds again; only `probe` requests anything meanwhile.

    Args:
        admin: its admin port, a URL without a final slash.
        access: what is sent there.
        given: whether the operator named it; if not, another member's fleet did.
    """

    def __init__(self, admin: str, client: httpx.AsyncClient, access: AdminAccess, *, given: bool) -> None:
        self.admin = admin
        self.given = given
        self.status: StatusDocument | None = None
        self.fleet: FleetDocument | None = None
        self.fleet_name = ""  # by the fleet
        self.silent_since: datetime | None = None
        self.problem = ""
        self.responds = False  # has responded at all
        self.failures = 0
        self.absent: set[str] = set()  # documents that its version does not offer
        self._client = client
        self._access = access
        self._missing: dict[str, tuple[float, tuple[str, ...]]] = {}  # by document, with the time
        self._broken: Look[Any] | None = None  # which was asked for when it fell silent
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    @property
    def name(self) -> str:
        """The member's name in the fleet, or host and port of its admin port."""
        own = self.status.member if self.status else ""
        return own or self.fleet_name or self.admin.partition("://")[2]

    async def probe(self) -> None:
        """Request the member's status and fleet, even while it is silent; if both succeed, it is no longer silent.

        Raises:
            MemberError: it does not respond.
        """
        self.status = await self.ask(Look("/v1/status", StatusDocument, 0.0))
        self.fleet = await self.ask(Look("/v1/fleet", FleetDocument, 0.0))
        if self._broken is not None:
            await self.ask(self._broken)  # what responds, and fails in one document, is not well yet
        if self.silent_since is not None:
            event(LOG, logging.INFO, "a member responds again", admin=self.admin)
        self.silent_since, self.problem, self.responds, self._broken = None, "", True, None

    async def read(self, look: Look[_Value]) -> _Value | None:
        """Return a document, at most `look.age` seconds old; None if the member does not offer it, or is silent.

        Simultaneous callers share one request; a document that takes long is requested more rarely.
        """
        kept = self._keep(look.path)
        async with kept.lock:
            age = max(look.age, kept.took / _LOAD_MAX)
            if self.silent_since is None and (kept.at is None or time.monotonic() - kept.at >= age):
                began = time.monotonic()
                try:
                    kept.value = await self.ask(look)
                except MemberError:
                    kept.value = None
                kept.at = time.monotonic()
                kept.took = kept.at - began
            value: _Value | None = kept.value if self.silent_since is None else None
        return value

    def _keep(self, path: str) -> _Kept:
        kept = self._kept.get(path)
        if kept is None:
            while len(self._kept) >= _CACHED_MAX:
                self._kept.popitem(last=False)
            kept = self._kept[path] = _Kept()
        self._kept.move_to_end(path)
        return kept

    async def ask(self, look: Look[_Value]) -> _Value | None:
        """Request a document; None if the member does not offer it, or none of its workers can respond.

        Raises:
            MemberError: the member does not respond, or not with such a document; it is silent from now on.
        """
        name = look.path.partition("?")[0]
        try:
            code, body = await asyncio.wait_for(self._get_with_token(look), look.seconds_max)
            if code == HTTPStatus.SERVICE_UNAVAILABLE and (missing := _missing_of(body)):
                self._note_missing(name, missing)
                return None
            if code == HTTPStatus.NOT_FOUND:
                if not body.lstrip().startswith(b"{"):  # a document says itself what it does not have
                    self.absent.add(name)
                return None
            if code != HTTPStatus.OK:
                raise MemberError(self._refusal(name, code, body))
            self.absent.discard(name)
            if len(body) <= _PARSED_HERE_MAX:
                value = self._decoded(look, body)
            else:
                value = await asyncio.to_thread(self._decoded, look, body)
            self._note_missing(name, missing_workers(value.missing))
            return value
        except TimeoutError:
            raise self._failed(look, f"no response within {look.seconds_max:g} s") from None
        except httpx.HTTPError as error:
            problem = tls_problem(error, self.admin.partition("://")[2]) or str(error) or type(error).__name__
            raise self._failed(look, problem) from None
        except DocumentError as error:
            raise self._failed(look, f"{name} is not Sluice's: {error}") from None
        except MemberError as error:
            raise self._failed(look, str(error)) from None

    @property
    def missing(self) -> tuple[str, ...]:
        """The member's worker processes whose figures were missing in documents of the last LACKS_SECONDS."""
        since = time.monotonic() - LACKS_SECONDS
        found = (one for at, missing in self._missing.values() if at >= since for one in missing)
        # By worker: how long it has been silent differs from document to document.
        return tuple({one.partition("(")[0]: one for one in found}.values())

    def _decoded(self, look: Look[_Value], body: bytes) -> _Value:
        value = decode(body, look.kind)
        bound(value, self.name)
        return value

    def _note_missing(self, name: str, missing: tuple[str, ...]) -> None:
        self._missing[name] = time.monotonic(), missing

    def _refusal(self, name: str, code: int, body: bytes) -> str:
        """Return a sentence on a response with an error status: where the port says why, its own words."""
        if code == HTTPStatus.UNAUTHORIZED:
            return self._access.refusal(self.admin, given=self.given)
        if code in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN):
            return printable(body[:_PROBLEM_CHARACTERS_MAX].decode("utf-8", "replace").strip())
        return f"{name}: HTTP status {code}"

    async def _get_with_token(self, look: Look[Any]) -> tuple[int, bytes]:
        """Send the request; once more if the token was refused, and its file has another one by now."""
        sent = self._access.headers(self.admin, given=self.given)
        code, body = await self._get_again(look, sent)
        if code == HTTPStatus.UNAUTHORIZED:
            await asyncio.to_thread(self._access.renew)
            headers = self._access.headers(self.admin, given=self.given)
            if headers != sent:  # also where another member's request has had it read again
                code, body = await self._get_again(look, headers)
        return code, body

    async def _get_again(self, look: Look[Any], headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send the request; once more if the connection, kept since the last request, has been closed."""
        try:
            return await self._get(look, headers)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return await self._get(look, headers)

    async def _get(self, look: Look[Any], headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Return the status code and the body, of at most `look.bytes_max` bytes."""
        body = bytearray()
        async with self._client.stream("GET", self.admin + look.path, headers=headers) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise MemberError("it compresses its response, which was not asked for")
            async for portion in response.aiter_raw():
                body += portion
                if len(body) > look.bytes_max:
                    raise MemberError(f"{look.path.partition('?')[0]} is larger than {look.bytes_max} bytes")
        return response.status_code, bytes(body)

    def _failed(self, look: Look[Any], problem: str) -> MemberError:
        """Count a failure, and mark the member as silent from now on; return the error to raise."""
        self.failures += 1
        self.problem = problem[:_PROBLEM_CHARACTERS_MAX]
        if self.silent_since is None:
            self.silent_since, self._broken = datetime.now(UTC), look
            event(LOG, logging.WARNING, "a member does not respond", admin=self.admin, reason=self.problem)
        return MemberError(self.problem)


def _missing_of(body: bytes) -> tuple[str, ...]:
    """Return the workers without which there is no document, from the body of a 503; () if it names none."""
    try:
        return missing_workers(decode(body, Refused).missing) if len(body) <= _PARSED_HERE_MAX else ()
    except DocumentError:
        return ()
