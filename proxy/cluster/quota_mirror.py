"""The brokers' own quotas, asked for every few seconds (`[quotas] source = "cluster"`; KIP-546).

One DescribeClientQuotas for everything, on a short connection of Sluice's own, which needs DescribeConfigs on the
cluster where brokers have ACLs. What comes back goes to whoever keeps the quotas. As long as no broker answers, or none
lets Sluice see them, the quotas stay as they were last seen: at the start, none. Ignored: who altered them, and when.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kafka_client import quotas
from proxy.cluster.client import BrokerClient, Target, first_answer
from proxy.logs import event

__all__ = ["QuotaMirror"]

_POLL_SECONDS: Final = 5.0
_ANSWER_SECONDS_MAX: Final = 10.0

logger = logging.getLogger(__name__)


class QuotaMirror:
    """Asks for the quotas.

    Args:
        take: gets an answer with everything, and tells whether anything differed.

    Attributes:
        problem: why the quotas can not be seen now; "" when they can.
    """

    def __init__(
        self,
        client: BrokerClient,
        take: Callable[[quotas.QuotaEntities], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._brokers = client.brokers
        self._take = take
        self.problem = "the cluster has not been asked yet"

    async def run(self) -> None:
        """Ask for ever; the application cancels it."""
        while True:
            await self.poll()
            await asyncio.sleep(_POLL_SECONDS)

    async def poll(self) -> None:
        """Ask once."""
        try:
            differs = await first_answer(self._brokers.targets(), self._mirror, _ANSWER_SECONDS_MAX)
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
        """Pass on the quotas as one broker knows them; return whether anything differed."""
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            answer = await self._client.ask(target, quotas.describe())
        if answer.error_code:
            raise OSError(f"error {answer.error_code}: {answer.error_message}")
        return await self._take(answer)
