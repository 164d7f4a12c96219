"""`/v1`: where clients' time goes, and why, as JSON (docs/api.md). Pure but for its source of figures.

/v1/clients?window=60                                     all clients, or those of one user
/v1/client?client_id=web-1&user=alice&window=60           one client, with the sentence
/v1/rules?window=60                                       all limits, and how many clients use them
/v1/brokers                                               brokers' response times
/v1/capacities                                            how capacities are divided among classes
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from heapq import nlargest
from itertools import islice
from typing import Final, Protocol

from msgspec.structs import replace

from proxy.admin.http import Page, RefusedError, Request, fields_of
from proxy.admin.server import Handler, page, rows_page, sorted_in_turns
from proxy.explain.budgets import Budgets, RuleTable
from proxy.explain.documents import (
    CLIENTS_MAX,
    BrokersDocument,
    CapacitiesDocument,
    ClientsDocument,
    Level,
    Missing,
    Refused,
    RulesDocument,
)
from proxy.explain.explanation import Context, Origin, broker_times, explain, origin_of, summary, waited_class
from proxy.explain.parts import MINUTE, SECONDS
from proxy.explain.report import NOTHING, ClientReport, Query, Seen, waited_part
from proxy.system.threads import in_turns, without_collections
from quotas.definitions.entities import BucketKey, Entity
from quotas.engine import Engine

_USERS_MAX: Final = 20  # of one client id, that are looked for at one address


class CapacitySource(Protocol):
    """What is known of capacities, in this process or at the fleet's holder."""

    async def document(self) -> CapacitiesDocument:
        """Return the document of `/v1/capacities`."""

    async def level(self, key: str, bucket: BucketKey, broker: int | None, window: int) -> Level | None:
        """Return what has kept a class from using more of a capacity over a window; None if it has not waited."""


class Explanations:
    """The pages `/v1/clients`, `/v1/client`, `/v1/rules`, `/v1/brokers` and `/v1/capacities`.

    Args:
        seen: returns the response to a query about clients' time, of this process or of all of its workers.
        origin: returns who has set an entity's limit, or a setting in `[quotas]`, and when.
        member: whether the process is a member of a fleet.
        capacities: what is known of capacities; None: there are none.
    """

    def __init__(
        self,
        seen: Callable[[Query], Awaitable[Seen]],
        quotas: Engine,
        origin: Callable[[Entity | None, str], Origin],
        *,
        member: bool = False,
        capacities: CapacitySource | None = None,
    ) -> None:
        self._member = member
        self._capacities = capacities
        self._seen = seen
        self._quotas = quotas
        self._origin = origin
        self._one_at_a_time = asyncio.Lock()
        self._one_client_at_a_time = asyncio.Lock()  # which does not wait for a list

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler of each page, by path."""
        return {
            "/v1/clients": self._clients,
            "/v1/client": self._client,
            "/v1/rules": self._rules,
            "/v1/brokers": self._brokers,
            "/v1/capacities": self._capacities_page,
        }

    async def _clients(self, request: Request) -> Page:
        fields = fields_of(request.query, ("window", "user"))
        window = _window(fields)
        user = fields.get("user")
        async with self._list_of_clients():
            clients, budgets, missing = await self._all(window)
            enforcing = self._quotas.enforcing
            if user is not None:
                clients = [client async for client in in_turns(clients) if client.user == user]
            document = ClientsDocument(
                window_seconds=SECONDS[window],
                enforcing=enforcing,
                missing=missing,
                clients_total=len(clients),
            )
            order = islice(await sorted_in_turns(clients, _waited), CLIENTS_MAX)
            rows = (summary(client, budgets, enforcing=enforcing) for client in order)
            return await _and_free(await rows_page(document, rows), clients)

    async def _rules(self, request: Request) -> Page:
        window = _window(fields_of(request.query, ("window",)))
        async with self._list_of_clients():
            clients, budgets, missing = await self._all(window)
            definitions, enforcing = self._quotas.definitions, self._quotas.enforcing
            table = RuleTable(definitions, budgets)
            async for client in in_turns(clients):
                table.add(client)
            document = RulesDocument(
                window_seconds=SECONDS[window],
                enforcing=enforcing,
                missing=missing,
                entities_total=len(definitions),
            )
            rows = table.rows(
                lambda found: origin_of(found, self._origin), datetime.now(UTC), enforced=enforcing
            )
            return await _and_free(await rows_page(document, rows), clients)

    @asynccontextmanager
    async def _list_of_clients(self) -> AsyncIterator[None]:
        """Let one request at a time make a list of clients, with Python's collection of cycles paused.

        Each list is large, and a collection would visit all of it.
        """
        async with self._one_at_a_time:
            with without_collections():
                yield

    async def _all(self, window: int) -> tuple[list[ClientReport], Budgets, tuple[Missing, ...]]:
        """Return all clients, what they use of each budget, and the workers whose clients are not among them."""
        seen = await self._seen(Query(window))
        budgets = Budgets(self._quotas.definitions, self._quotas.options.partition_mutations_rate)
        clients = list(seen.clients)
        async for client in in_turns(clients):
            budgets.add(client)
        return clients, budgets, seen.missing

    async def _client(self, request: Request) -> Page:
        fields = fields_of(request.query, ("window", "user", "client_id", "address"))
        window = _window(fields)
        if "client_id" not in fields:
            raise RefusedError(400, "client_id is missing: /v1/client?client_id=NAME[&user=NAME][&window=60]")
        address = _address(fields)
        async with self._one_client_at_a_time:
            seen = await self._seen_of(fields, window, address)
        if not seen.clients:
            where = f" at {address}" if address else ""
            error = f"no client with client id {fields['client_id']!r} was seen{where}"
            if not seen.missing:
                return page(404, Refused(error))
            return page(503, Refused(f"{error}, which is not certain: workers are missing", seen.missing))
        level = await self._level(seen.clients[0], window)
        context = Context(
            window,
            self._quotas.definitions,
            self._quotas.enforcing,
            self._quotas.options.partition_mutations_rate,
            self._origin,
            lambda rule: seen.neighbours.get(rule, ()),
            seen.brokers,
            datetime.now(UTC),
            seen.own,
            self._member,
            seen.backlogs,
            level,
            self._quotas.options.policy == "schedule",
        )
        document = explain(seen.clients[0], context)
        document.missing = seen.missing
        return page(200, document)

    async def _brokers(self, request: Request) -> Page:
        fields_of(request.query, ())
        seen = await self._seen(Query(MINUTE, brokers_only=True))
        brokers = tuple(map(broker_times, seen.brokers))
        return page(
            200, BrokersDocument(enforcing=self._quotas.enforcing, missing=seen.missing, brokers=brokers)
        )

    async def _capacities_page(self, request: Request) -> Page:
        fields_of(request.query, ())
        if self._capacities is None:
            return page(200, CapacitiesDocument(enforcing=self._quotas.enforcing))
        return page(200, await self._capacities.document())

    async def _level(self, client: ClientReport, window: int) -> Level | None:
        """Return what has kept the client's class from using more of a capacity; None without one."""
        found = waited_class(client, self._quotas.definitions, enforcing=self._quotas.enforcing)
        if found is None or self._capacities is None:
            return None
        return await self._capacities.level(*found, window)

    async def _seen_of(self, fields: Mapping[str, str], window: int, address: str) -> Seen:
        """Return what is known of the client that is meant: the first that has connections there.

        `missing` is of all queries together.
        """
        client_id, user = fields["client_id"], fields.get("user")
        if user is not None:
            return await self._seen(Query(window, (user, client_id), address=address))
        named = await self._seen(Query(window, client_id=client_id))
        missing = {one.worker: one for one in named.missing}
        # Those that may be meant, the one that waits longest first.
        for client in nlargest(_USERS_MAX, named.clients, key=lambda one: (_waited(one), sum(one.times))):
            seen = await self._seen(Query(window, (client.user, client_id), address=address))
            missing.update((one.worker, one) for one in seen.missing)
            if seen.clients:
                return replace(seen, missing=tuple(missing.values()))
        return replace(NOTHING, missing=tuple(missing.values()))


async def _and_free(page: Page, clients: list[ClientReport]) -> Page:
    """Return the page after freeing the clients in turns: freeing 10,000 in one go would hold the loop."""
    async for _ in in_turns(range(len(clients))):
        clients.pop()
    return page


def _address(fields: Mapping[str, str]) -> str:
    """Return the IP address of the query as it is written in `peer`; "" for all.

    Raises:
        RefusedError: it is not an IP address.
    """
    text = fields.get("address", "")
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        raise RefusedError(400, "address must be an IP address") from None


def _waited(client: ClientReport) -> float:
    return max((waited_part(connection.times) for connection in client.connections), default=0.0)


def _window(fields: Mapping[str, str]) -> int:
    """Return the window of the query: TEN_SECONDS, MINUTE or QUARTER.

    Raises:
        RefusedError: there is no such window.
    """
    text = fields.get("window", str(SECONDS[MINUTE]))
    for index, seconds in enumerate(SECONDS):
        if text == str(seconds):
            return index
    raise RefusedError(400, f"window must be one of {', '.join(map(str, SECONDS))} seconds")
