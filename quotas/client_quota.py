"""All that one client is throttled by at one broker (KIP-13, KIP-599, the request quota), and whether it may be
forgotten.

Produce and fetch bytes are counted for every client; what few clients need is made when somebody asks for it. Who
keeps these objects, and for how long, is `engine`.
"""

from quotas.client_bandwidth import Throttle
from quotas.mutation_quotas import MutationQuotas
from quotas.mutations import MutationThrottle
from quotas.request_quotas import RequestQuotas
from quotas.requests import RequestThrottle

__all__ = ["ClientQuota"]


class ClientQuota:
    """One client's throttles at one broker; of partition mutations there is one for all brokers.

    What few clients need is made when it is first asked for.
    """

    __slots__ = (
        "_broker",
        "_mutation_quotas",
        "_mutations",
        "_request_quotas",
        "_requests",
        "client_id",
        "fetch",
        "produce",
        "seen_bytes",
        "seen_ms",
        "user",
    )

    def __init__(
        self,
        user: str,
        client_id: str,
        broker: int,
        produce: Throttle,
        fetch: Throttle,
        mutation_quotas: MutationQuotas,
        request_quotas: RequestQuotas,
    ) -> None:
        self.user = user
        self.client_id = client_id
        self._broker = broker
        self.produce = produce
        self.fetch = fetch
        self._mutation_quotas = mutation_quotas
        self._mutations: MutationThrottle | None = None  # made when somebody asks: few clients do
        self._request_quotas = request_quotas
        self._requests: RequestThrottle | None = None  # likewise
        self.seen_bytes = -1  # what it had moved when the expiry last looked
        self.seen_ms = 0

    @property
    def mutations(self) -> MutationThrottle:
        """The client's partition mutations."""
        if self._mutations is None:
            self._mutations = self._mutation_quotas.client(self.user, self.client_id)
        return self._mutations

    @property
    def requests(self) -> RequestThrottle:
        """The time that the client's requests take."""
        if self._requests is None:
            self._requests = self._request_quotas.client(self.user, self.client_id, self._broker)
        return self._requests

    @property
    def measured(self) -> RequestThrottle | None:
        """The same, or None where nobody has asked for it."""
        return self._requests

    def busy(self, now_ms: int) -> bool:
        """Whether somebody holds a turn here, or it owes partition mutations."""
        owes = self._mutations is not None and self._mutations.owes(now_ms)
        return self.produce.turns > 0 or self.fetch.turns > 0 or owes

    def mark(self, now_ms: int, windows_ms: int) -> None:
        """Remember how much was moved by now, for the rates."""
        self.produce.mark(self.produce.bytes_total, now_ms, windows_ms)
        self.fetch.mark(self.fetch.bytes_total, now_ms, windows_ms)
        if self._requests is not None:
            self._requests.mark(self._requests.spent_us_total, now_ms, windows_ms)

    def moved(self) -> int:
        """A number that changes when the client does anything that counts."""
        mutations = 0 if self._mutations is None else self._mutations.mutations_total
        spent_us = 0 if self._requests is None else self._requests.spent_us_total
        return self.produce.bytes_total + self.fetch.bytes_total + mutations + spent_us

    def detach(self) -> None:
        """Let go of everything that is counted."""
        self.produce.detach()
        self.fetch.detach()
        if self._mutations is not None:
            self._mutation_quotas.leave(self._mutations)
            self._mutations = None
        if self._requests is not None:
            self._requests.detach()
            self._requests = None
