"""Asks the cluster for the names of topics that traffic names by id, where topics have quotas (KIP-516).

Only when traffic has shown an id is anything asked for: it, at most a thousand ids in one question and one question a
second, and the ids of topics that have limits of their own, since a client may show more ids than can be asked for. An
id never gets another name, so nothing has to be asked for again. It needs Describe on the topics where brokers have
ACLs. A cluster that does not answer is no reason not to serve: the ids are asked for again when they are seen again,
and until then their topics are not charged, which is counted (`sluice_topic_bytes_uncharged_total`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from protocol.messages import metadata_topics
from proxy.cluster.asking import CLIENT_ID, CORRELATION_ID, exchange
from proxy.cluster.brokers import BrokerMap
from proxy.cluster.dialling import Tls, dial
from proxy.cluster.login import ASKING_FAILS, Login
from proxy.errors import reason
from proxy.logs import event
from proxy.worker import decoded
from quotas.topic_names import TopicNames

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
        login: authenticates each connection; None where brokers ask for no SASL.
        tls: gives the TLS context in force; None for plaintext.

    Attributes:
        problem: why names can not be found out now; "" when they can.
    """

    def __init__(
        self,
        brokers: BrokerMap,
        names: TopicNames,
        now_ms: Callable[[], int],
        *,
        login: Login | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._brokers = brokers
        self._names = names
        self._now_ms = now_ms
        self._login = login
        self._tls = tls
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
        problems = []
        for host, port in self._brokers.targets():
            try:
                async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                    found = await self._ask(host, port, wanted, limited)
            except ASKING_FAILS as error:
                problems.append(f"{host}:{port}: {reason(error, _ANSWER_SECONDS_MAX)}")
                continue
            for topic in found:
                if topic.name and not topic.error_code:
                    self._names.learn(topic.topic_id, topic.name)
            self.problem = ""
            return bool(wanted)
        problem = "; ".join(problems[:3]) or "no broker is known"
        if problem != self.problem:
            event(logger, logging.WARNING, "cannot ask for the names of topics", detail=problem)
        self.problem = problem
        return True

    async def _ask(
        self, host: str, port: int, wanted: list[bytes], limited: list[str]
    ) -> list[metadata_topics.TopicSeen]:
        # Two questions: a broker that is asked for ids does not look at names.
        questions = []
        if wanted:
            questions.append((metadata_topics.request_by_id(wanted, CORRELATION_ID, CLIENT_ID), len(wanted)))
        if limited:
            questions.append((metadata_topics.request_ids(limited, CORRELATION_ID, CLIENT_ID), len(limited)))
        reader, writer = await dial(self._brokers, host, port, self._tls)
        found = []
        try:
            if self._login is not None:
                await self._login(reader, writer)
            for question, topics in questions:
                frame = await exchange(reader, writer, question)
                seen = await decoded(metadata_topics.read_topics, frame, metadata_topics.BY_ID_VERSION)
                found += seen[:topics]  # a broker may say anything
        finally:
            writer.close()
        return found
