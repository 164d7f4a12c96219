"""The brokers' own quotas, read every few seconds (`[quotas] store = "cluster"`; KIP-546).

One DescribeClientQuotas for all entities, on a short connection of Sluice's own; with ACLs it needs DescribeConfigs on
the cluster. The result goes to the owner of the quotas. While no broker responds, or none permits it, the last quotas
stay in force; at the start, none. Ignored: who altered them, and when.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kafka_client import quotas
from proxy.control.cluster.client import BrokerClient, Target, first_response
from proxy.system.logs import event

_POLL_SECONDS: Final = 5.0
_RESPONSE_SECONDS_MAX: Final = 10.0

logger = logging.getLogger(__name__)


class QuotaMirror:
    """Reads all quotas from the brokers at intervals and passes them on, for `[quotas] store = "cluster"`.

    Args:
        take: called with all quotas of a response; puts them in force and returns whether any differed.

    Attributes:
        problem: why the quotas cannot be read now; "" if they can.
    """

    def __init__(self, client: BrokerClient, take: Callable[[quotas.QuotaEntities], Awaitable[bool]]) -> None:
        self._client = client
        self._brokers = client.brokers
        self._take = take
        self.problem = "the cluster has not been asked yet"

    async def run(self) -> None:
        """Read the quotas at intervals, until cancelled by the application."""
        while True:
            await self.poll()
            await asyncio.sleep(_POLL_SECONDS)

    async def poll(self) -> None:
        """Read the brokers' quotas once; `problem` says why that has failed."""
        try:
            differs = await first_response(self._brokers.targets(), self._mirror, _RESPONSE_SECONDS_MAX)
        except OSError as error:
            problem = str(error)
            if problem != self.problem:
                event(logger, logging.WARNING, "cannot read the brokers' quotas", detail=problem)
            self.problem = problem
        else:
            if differs or self.problem:
                event(logger, logging.INFO, "the brokers' quotas were read", differ=differs)
            self.problem = ""

    async def _mirror(self, target: Target) -> bool:
        """Take the quotas from one broker; return whether any quota differed."""
        async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
            response = await self._client.ask(target, quotas.describe())
        if response.error_code:
            raise OSError(f"error {response.error_code}: {response.error_message}")
        return await self._take(response)
