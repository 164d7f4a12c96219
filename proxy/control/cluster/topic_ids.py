"""Looks up the names of topics that traffic identifies by id, if topics have quotas (KIP-516).

Requests are only sent when traffic contains an unknown id: for the id, at most a thousand ids a second, and for the
topics with limits of their own, since a client may send more ids than can be looked up. An id never changes its name,
so each is looked up once. With ACLs it needs Describe on the topics. If the cluster does not respond, traffic is served
all the same: an id is looked up when it appears again, and until then its topic is not charged, which is counted
(`sluice_topic_bytes_uncharged_total`).

Non-obvious:

- A topic's id never gets another name, so names stay valid, and only ids that occur in traffic are asked for. A
  topic that is created again has a new id.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from kafka_client import metadata
from kafka_client.request import chunks
from proxy.control.cluster.client import BrokerClient, Target, ask, first_response
from proxy.system.logs import event
from quotas.throttles.topic_names import TopicNames

PAUSE_SECONDS: Final = 1.0
_LIMITED_SECONDS: Final = 60.0
_RESPONSE_SECONDS_MAX: Final = 5.0

logger = logging.getLogger(__name__)


class TopicIds:
    """Looks up the names of topics that requests identify by id, with Metadata requests (KIP-516).

    Args:
        names: the known names and the ids to look up.
        now_ms: the monotonic clock, in ms.

    Attributes:
        problem: why names cannot be looked up now; "" if they can.
    """

    def __init__(self, client: BrokerClient, names: TopicNames, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._brokers = client.brokers
        self._names = names
        self._now_ms = now_ms
        self._wanted = asyncio.Event()
        self.problem = ""
        names.wake = self._wanted.set

    async def run(self) -> None:
        """Look up the ids and names of topics, until cancelled by the application.

        Unknown ids in requests are looked up soon, the ids of topics with quotas every minute. So already the first
        bytes of a topic with a quota count against it.
        """
        self._wanted.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LIMITED_SECONDS):
                    await self._wanted.wait()
            self._wanted.clear()
            if await self.ask():
                await asyncio.sleep(PAUSE_SECONDS)

    async def ask(self) -> bool:
        """Look up all wanted ids and topics once, in one request to a broker.

        Returns: True if a request of a client contained an unknown id, or if no broker responded; then `run` pauses
        before the next look-up. False otherwise.
        """
        wanted = self._names.take_wanted(self._now_ms())
        limited = self._names.take_limited()
        if not wanted and not limited:
            return False
        ask = partial(self._ask, wanted, limited)
        try:
            found = await first_response(self._brokers.targets(), ask, _RESPONSE_SECONDS_MAX)
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

    async def _ask(
        self, wanted: list[bytes], limited: list[str], target: Target
    ) -> list[metadata.TopicMetadata]:
        # By id and by name: with ids in a request, brokers ignore names.
        requests = [(len(chunk), partial(metadata.topics_by_id, chunk)) for chunk in chunks(wanted)]
        requests += [(len(chunk), partial(metadata.topics_by_name, chunk)) for chunk in chunks(limited)]
        found: list[metadata.TopicMetadata] = []
        async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
            connection = await self._client.connect(target)
            try:
                for topics, request in requests:
                    found += (await ask(connection, request()))[:topics]  # a broker may return any number
            finally:
                connection.close()
        return found
