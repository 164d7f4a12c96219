"""The brokers' own quotas, asked for every few seconds (`[quotas] source = "cluster"`; KIP-546).

One DescribeClientQuotas for everything, on a short connection of Sluice's own, which needs DescribeConfigs on the
cluster where brokers have ACLs. What comes back goes to whoever keeps the quotas. As long as no broker answers, or none
lets Sluice see them, the quotas stay as they were last seen: at the start, none. Ignored: who altered them, and when.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.api import DESCRIBE_CLIENT_QUOTAS
from protocol.messages.client_quotas_calls import DescribeAnswer
from proxy.cluster.asking import ask
from proxy.cluster.brokers import BrokerMap
from proxy.cluster.dialling import Tls, dial
from proxy.cluster.login import ASKING_FAILS, Login
from proxy.errors import reason
from proxy.logs import event

__all__ = ["QuotaMirror"]

_POLL_SECONDS: Final = 5.0
_ANSWER_SECONDS_MAX: Final = 10.0
_VERSION: Final = 0
_EVERYTHING: Final = bytes(5)  # no components, not strict

logger = logging.getLogger(__name__)


class QuotaMirror:
    """Asks for the quotas.

    Args:
        take: gets an answer with everything, and tells whether anything differed.
        login: authenticates each connection; None where brokers ask for no SASL.
        tls: gives the TLS context in force; None for plaintext.

    Attributes:
        problem: why the quotas can not be seen now; "" when they can.
    """

    def __init__(
        self,
        brokers: BrokerMap,
        take: Callable[[DescribeAnswer], Awaitable[bool]],
        login: Login | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._brokers = brokers
        self._take = take
        self._login = login
        self._tls = tls
        self.problem = "the cluster has not been asked yet"

    async def run(self) -> None:
        """Ask for ever; the application cancels it."""
        while True:
            await self.poll()
            await asyncio.sleep(_POLL_SECONDS)

    async def poll(self) -> None:
        """Ask once."""
        problems = []
        for host, port in self._brokers.targets():
            try:
                async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                    answer = await self._ask(host, port)
                if answer.error_code:
                    problems.append(f"{host}:{port}: error {answer.error_code}: {answer.error_message}")
                    continue
                differs = await self._take(answer)
            except ASKING_FAILS as error:
                problems.append(f"{host}:{port}: {reason(error, _ANSWER_SECONDS_MAX)}")
                continue
            if differs or self.problem:
                event(logger, logging.INFO, "the brokers' quotas were read", differ=differs)
            self.problem = ""
            return
        problem = "; ".join(problems[:3]) or "no broker is known"
        if problem != self.problem:
            event(logger, logging.WARNING, "cannot read the brokers' quotas", detail=problem)
        self.problem = problem

    async def _ask(self, host: str, port: int) -> DescribeAnswer:
        reader, writer = await dial(self._brokers, host, port, self._tls)
        try:
            if self._login is not None:
                await self._login(reader, writer)
            frame = await ask(reader, writer, DESCRIBE_CLIENT_QUOTAS, _VERSION, _EVERYTHING)
        finally:
            writer.close()
        return DescribeAnswer(frame, _VERSION)
