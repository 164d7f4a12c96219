"""All throttles of one client at one broker (KIP-13, KIP-599, the request quota).

Produce and Fetch bytes are counted for every client; the other throttles are created at their first use. `engine` holds
these objects, and removes them when they are idle.
"""

from quotas.throttles.bandwidth import Throttle
from quotas.throttles.mutation import MutationQuotas, MutationThrottle
from quotas.throttles.request import RequestQuotas, RequestThrottle


class ClientQuota:
    """One client's throttles at one broker; its partition mutations have one throttle for all brokers.

    Throttles that few clients need are created at their first use.
    """

    __slots__ = (
        "_broker",
        "_mutation_quotas",
        "_mutations",
        "_request_quotas",
        "_requests",
        "client_id",
        "fetch",
        "last_active_ms",
        "last_activity",
        "produce",
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
        self._mutations: MutationThrottle | None = None  # created at its first use: few clients need it
        self._request_quotas = request_quotas
        self._requests: RequestThrottle | None = None  # likewise
        self.last_activity = -1  # `activity` at the last check for expiry
        self.last_active_ms = 0

    @property
    def mutations(self) -> MutationThrottle:
        """The throttle of the client's partition mutations."""
        if self._mutations is None:
            self._mutations = self._mutation_quotas.client(self.user, self.client_id)
        return self._mutations

    @property
    def requests(self) -> RequestThrottle:
        """The throttle of the client's request time."""
        if self._requests is None:
            self._requests = self._request_quotas.client(self.user, self.client_id, self._broker)
        return self._requests

    @property
    def requests_if_measured(self) -> RequestThrottle | None:
        """The throttle of the client's request time; None before its first use."""
        return self._requests

    def taken(self) -> tuple[int, int, int, int]:
        """Produce bytes, Fetch bytes, microseconds of request time, and partition mutations (these at all brokers)."""
        spent_us = 0 if self._requests is None else self._requests.spent_us_total
        mutations = 0 if self._mutations is None else self._mutations.mutations_total
        return self.produce.bytes_total, self.fetch.bytes_total, spent_us, mutations

    def in_use(self, now_ms: int) -> bool:
        """Whether a channel is attached, or the client owes partition mutations."""
        in_debt = self._mutations is not None and self._mutations.in_debt(now_ms)
        return self.produce.flows > 0 or self.fetch.flows > 0 or in_debt

    def mark(self, now_ms: int, windows_ms: int) -> None:
        """Store the current counts, from which rates are computed (`windowed`)."""
        self.produce.mark(self.produce.bytes_total, now_ms, windows_ms)
        self.fetch.mark(self.fetch.bytes_total, now_ms, windows_ms)
        if self._requests is not None:
            self._requests.mark(self._requests.spent_us_total, now_ms, windows_ms)
        if self._mutations is not None:
            self._mutations.mark(self._mutations.mutations_total, now_ms, windows_ms)

    def activity(self) -> int:
        """A number that changes with every counted byte, mutation or request."""
        mutations = 0 if self._mutations is None else self._mutations.mutations_total
        spent_us = 0 if self._requests is None else self._requests.spent_us_total
        return self.produce.bytes_total + self.fetch.bytes_total + mutations + spent_us

    def detach(self) -> None:
        """Detach from all limiters."""
        self.produce.detach()
        self.fetch.detach()
        if self._mutations is not None:
            self._mutation_quotas.leave(self._mutations)
            self._mutations = None
        if self._requests is not None:
            self._requests.detach()
            self._requests = None
