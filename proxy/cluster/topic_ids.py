"""Asks the cluster for the names of topics that traffic names by id, where topics have quotas (KIP-516).

Only when traffic has shown an id is anything asked for: it, at most a thousand ids a second, and the ids of topics that
have limits of their own, since a client may show more ids than can be asked for. An id never gets another name, so
nothing has to be asked for again. It needs Describe on the topics where brokers have ACLs. A cluster that does not
answer is no reason not to serve: the ids are asked for again when they are seen again, and until then their topics are
not charged, which is counted (`sluice_topic_bytes_uncharged_total`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from kafka_client import metadata
from kafka_client.request import chunks
from proxy.cluster.client import BrokerClient, Target, ask, first_answer
from proxy.logs import event
from quotas.throttles.topic_names import TopicNames

__all__ = ["TopicIds"]

_PAUSE_SECONDS: Final = 1.0
_LIMITED_SECONDS: Final = 60.0
_ANSWER_SECONDS_MAX: Final = 5.0

logger = logging.getLogger(__name__)


class TopicIds:
    """Finds names.

    Args:
        names: what is known, and what is wanted.
        now_ms: the time, monotonic.

    Attributes:
        problem: why names can not be found out now; "" when they can.
    """

    def __init__(
        self,
        client: BrokerClient,
        names: TopicNames,
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._brokers = client.brokers
        self._names = names
        self._now_ms = now_ms
        self._wanted = asyncio.Event()
        self.problem = ""
        names.wake = self._wanted.set

    async def run(self) -> None:
        """Ask whenever there is something to ask, and now and then for the topics that have limits: those are to be
        charged from their first bytes on. The application cancels it.
        """
        self._wanted.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LIMITED_SECONDS):
                    await self._wanted.wait()
            self._wanted.clear()
            if await self.ask():
                await asyncio.sleep(_PAUSE_SECONDS)

    async def ask(self) -> bool:
        """Ask once, for everything that is wanted; tell whether traffic wanted any of it."""
        wanted = self._names.take_wanted(self._now_ms())
        limited = self._names.take_limited()
        if not wanted and not limited:
            return False
        ask = partial(self._ask, wanted, limited)
        try:
            found = await first_answer(self._brokers.targets(), ask, _ANSWER_SECONDS_MAX)
        except OSError as error:
            problem = str(error)
            if problem != self.problem:
                event(logger, logging.WARNING, "cannot ask for the names of topics", detail=problem)
            self.problem = problem
            return True
        for topic in found:
            if topic.name and not topic.error_code:
                self._names.learn(topic.topic_id, topic.name)
        self.problem = ""
        return bool(wanted)

    async def _ask(self, wanted: list[bytes], limited: list[str], target: Target) -> list[metadata.TopicSeen]:
        # By id and by name: a broker that is asked for ids does not look at names.
        requests = [(len(chunk), partial(metadata.topics_by_id, chunk)) for chunk in chunks(wanted)]
        requests += [(len(chunk), partial(metadata.topics_by_name, chunk)) for chunk in chunks(limited)]
        found: list[metadata.TopicSeen] = []
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            connection = await self._client.connect(target)
            try:
                for topics, request in requests:
                    found += (await ask(connection, request()))[:topics]  # a broker may say anything
            finally:
                connection.close()
        return found
