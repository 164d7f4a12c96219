"""The throttled replicas and replication rates, read from the cluster or from Sluice's own file (KIP-73).

    throttled       lists                                     rates
    cluster         topics' dynamic configs                   brokers' dynamic configs
    file            [replication] *_throttled_replicas        [replication] leader_rate, follower_rate
    reassignments   replicas that reassignments are adding    [replication] leader_rate, follower_rate

Read every second, and at once when a follower begins to fetch a partition: until the result is known, the partition is
not fetched if it is behind. So no replica passes unthrottled between the beginning of a reassignment and the next
round. Each broker describes its own rates. Topics are only read while there is a rate, since otherwise their lists have
no effect, and only those that are replicated through this process. Settings that cannot be read stay as they were: a
broker that is down keeps its last rate, and no throttle ends because Sluice cannot read it.

Permissions: DescribeConfigs on the cluster and on topics, Describe on topics. Nothing is changed in the cluster.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from kafka_client import ASKING_FAILS, Connection, Request, metadata
from kafka_client.metadata import Described
from kafka_client.request import chunks
from proxy.config import ReplicationSettings
from proxy.control.cluster.client import BrokerClient, Target, ask, first_response
from proxy.system.errors import reason
from proxy.system.logs import event
from quotas.definitions.kinds import FOLLOWER_RATE, LEADER_RATE
from quotas.replication.replication_quotas import (
    TOPIC_IDS_MAX,
    BrokerLimits,
    ReplicaList,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_POLL_SECONDS: Final = 1.0
_CHECK_SECONDS: Final = 0.02  # how often to check whether a link waits for a result
_RESPONSE_SECONDS_MAX: Final = 5.0
_UNLIMITED: Final = 2**63 - 1  # Kafka's default
# A new topic is not known to every broker at once; a deleted one never again. This is a time, not a number of requests:
# while a link waits, requests follow each other every 20 ms.
_UNNAMED_MS_MAX: Final = 60_000
_WARNED_MAX: Final = 1000
_LOGGED_MAX: Final = 20

T = TypeVar("T")
_Settings = tuple[BrokerLimits, BrokerLimits, ThrottledReplicas]

logger = logging.getLogger(__name__)


class ReplicationSource:
    """Keeps the replication quotas up to date with the configuration and the cluster.

    Args:
        changed: called when a limit or list of throttled replicas differs, to decide again on waiting requests.
        now_ms: the clock of the replication quotas, in ms.

    Attributes:
        problem: why the cluster cannot be read now; "" if it can.
    """

    def __init__(
        self,
        client: BrokerClient,
        quotas: ReplicationQuotas,
        settings: ReplicationSettings,
        changed: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._brokers = client.brokers
        self._quotas = quotas
        self._settings = settings
        self._changed = changed
        self._now_ms = now_ms
        self._connections: dict[Target, Connection] = {}
        self._rates: dict[int, tuple[float | None, float | None]] = {}
        # Ids without a known name, and since when they are requested.
        self._unnamed_topics: dict[bytes, int] = {}
        self._warned: set[str] = set()
        self.problem = ""

    def configure(self, settings: ReplicationSettings) -> None:
        """Apply new settings of replication quotas.

        With `throttled = "file"` the file's lists of throttled replicas and its rates are in force when this
        returns; with `off` all limits have ended. Other lists follow at the next poll.
        """
        before, self._settings = self._settings, settings
        if settings.throttled != before.throttled:
            self._quotas.last_completed_poll = None
        self._quotas.configure(settings.options)
        if settings.throttled == "off":
            self._apply(BrokerLimits(), BrokerLimits(), ThrottledReplicas())
        elif settings.throttled == "file":
            leaders, followers = settings.lists()
            self._apply(*self._own_rates(), ThrottledReplicas(leaders=leaders, followers=followers))
        elif settings.throttled == "reassignments" == before.throttled:
            self._apply(*self._own_rates(), self._quotas.lists)  # even if the cluster cannot be reached

    async def run(self) -> None:
        """Poll at intervals, and at once when a poll is requested, until cancelled by the application."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self.poll()
                until = loop.time() + _POLL_SECONDS
                while loop.time() < until and not self._quotas.poll_requested:  # noqa: ASYNC110 - a flag of pure code, not an event
                    await asyncio.sleep(_CHECK_SECONDS)
        finally:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    async def poll(self) -> None:
        """Read the throttled replicas and rates from the cluster, as the settings say, and apply them."""
        settings, quotas = self._settings, self._quotas
        quotas.poll_requested = False
        if settings.throttled == "off":
            return
        quotas.polls_started += 1
        question = quotas.polls_started
        problem = ""
        found = None
        try:
            await self._name_topics()
            if settings.throttled == "cluster":
                found = await self._cluster_settings()
            elif settings.throttled == "reassignments":
                found = await self._reassignment_settings()
        except ASKING_FAILS as error:
            problem = reason(error, _RESPONSE_SECONDS_MAX)
        if settings is not self._settings:
            return  # the settings have changed meanwhile; this result is obsolete
        if found is not None:
            self._apply(*found)
        # While the cluster cannot be reached, no link waits for a result.
        quotas.last_completed_poll = None if problem else question
        quotas.failed_polls += bool(problem)
        if problem != self.problem:
            level = logging.WARNING if problem else logging.INFO
            event(logger, level, "replication throttles", problem=problem or "none: they are known again")
        self.problem = problem

    async def _name_topics(self) -> None:
        quotas, now_ms = self._quotas, self._now_ms()
        nameless = {
            topic: since_ms
            for topic, since_ms in self._unnamed_topics.items()
            if now_ms - since_ms < _UNNAMED_MS_MAX
        }
        self._unnamed_topics = nameless
        while quotas.unknown_topics:  # taken now: more may be added during the request
            topic = quotas.unknown_topics.pop()
            if len(nameless) < TOPIC_IDS_MAX:
                nameless.setdefault(topic, now_ms)
        wanted = list(nameless)
        names = dict(quotas.topic_names)
        for chunk in chunks(wanted):
            for seen in (await self._ask_any_broker(metadata.topics_by_id(chunk)))[: len(chunk)]:
                if seen.name:
                    names[seen.topic_id] = seen.name
                    nameless.pop(seen.topic_id, None)
        quotas.name_topics(names)

    async def _cluster_settings(self) -> _Settings:
        """Return the brokers' rates, and the lists of their topics if there is any rate."""
        keys = (LEADER_RATE, FOLLOWER_RATE)
        brokers = self._brokers.live()
        found = await asyncio.gather(*(self._describe_broker(broker, keys) for broker in brokers))
        if all(described is None for described in found):
            raise OSError("no broker describes its configs" if brokers else "no broker is known yet")
        for broker, described in zip(brokers, found, strict=True):
            if described is not None:
                self._rates[broker] = (_rate(described, LEADER_RATE), _rate(described, FOLLOWER_RATE))
        leaders = BrokerLimits(of_broker={broker: rates[0] for broker, rates in self._rates.items()})
        followers = BrokerLimits(of_broker={broker: rates[1] for broker, rates in self._rates.items()})
        lists = ThrottledReplicas()
        if any(rate is not None for rates in self._rates.values() for rate in rates):
            lists = await self._topic_lists()
        return leaders, followers, lists

    async def _describe_broker(self, broker: int, keys: Sequence[str]) -> Described | None:
        _, target = self._brokers.upstream(broker)
        if target is None:
            return None
        try:
            found = await self._ask(metadata.describe_brokers((broker,), keys), target)
        except ASKING_FAILS:
            return None
        return found[0] if found and not found[0].error_code else None

    async def _topic_lists(self) -> ThrottledReplicas:
        names = sorted(set(self._quotas.topic_names.values()))
        leaders: dict[str, ReplicaList] = {}
        followers: dict[str, ReplicaList] = {}
        for chunk in chunks(names):
            request = metadata.describe_topics(chunk, (LEADER_REPLICAS, FOLLOWER_REPLICAS))
            for topic in (await self._ask_any_broker(request))[: len(chunk)]:
                await asyncio.sleep(0)  # a list has up to 32 kB, and is parsed on the loop
                for key, lists, before in (
                    (LEADER_REPLICAS, leaders, self._quotas.lists.leaders),
                    (FOLLOWER_REPLICAS, followers, self._quotas.lists.followers),
                ):
                    if topic.error_code:  # the broker does not know it yet, or Sluice lacks the permission
                        if topic.name in before:
                            lists[topic.name] = before[topic.name]
                    elif topic.configs.get(key):
                        lists[topic.name] = self._parse_list(
                            f"{key} of topic {topic.name}", topic.configs[key]
                        )
        return ThrottledReplicas(leaders=leaders, followers=followers)

    async def _reassignment_settings(self) -> _Settings:
        """Return the replicas that reassignments under way are adding, as throttled."""
        found = await self._ask_any_broker(metadata.list_ongoing())
        if found.error_code:
            raise OSError(
                f"ListPartitionReassignments: error {found.error_code} {found.error_message or ''}".strip()
            )
        return *self._own_rates(), ThrottledReplicas(adding=found.adding)

    def _own_rates(self) -> tuple[BrokerLimits, BrokerLimits]:
        settings = self._settings
        return BrokerLimits(default=settings.leader_rate), BrokerLimits(default=settings.follower_rate)

    def _apply(self, leaders: BrokerLimits, followers: BrokerLimits, lists: ThrottledReplicas) -> None:
        limited = self._quotas.limit(leaders, followers)
        if self._quotas.throttle(lists) or limited:
            event(
                logger,
                logging.INFO,
                "replication throttles changed",
                topics=len({*lists.leaders, *lists.followers}),
                adding=len(lists.adding),
            )
            self._warn_of_unknown_brokers(lists)
            self._changed()

    def _warn_of_unknown_brokers(self, lists: ThrottledReplicas) -> None:
        live = self._brokers.live()
        unknown = sorted(lists.brokers().difference(live)) if live else []
        if unknown:
            event(
                logger,
                logging.WARNING,
                "throttled replicas of brokers that are down or do not exist",
                brokers=",".join(map(str, unknown[:_LOGGED_MAX])),
                count=len(unknown),
            )

    def _parse_list(self, where: str, text: str) -> ReplicaList:
        found, problems = parse_replicas(text)
        for problem in problems:
            warning = f"{where}: {problem}"
            if warning not in self._warned and len(self._warned) < _WARNED_MAX:
                self._warned.add(warning)
                event(logger, logging.WARNING, "malformed list of throttled replicas", problem=warning)
        return found

    async def _ask_any_broker(self, request: Request[T]) -> T:
        """Ask brokers until one responds, beginning with the last one that did."""
        targets = self._brokers.targets()
        targets.sort(key=lambda target: target not in self._connections)
        return await first_response(targets, partial(self._ask, request), _RESPONSE_SECONDS_MAX)

    async def _ask(self, request: Request[T], target: Target) -> T:
        """Send a request on a kept connection.

        The connection is taken out meanwhile, since several brokers may have one address.
        """
        connection = self._connections.pop(target, None)
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
                if connection is None:
                    connection = await self._client.connect(target)
                found = await ask(connection, request)
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if target in self._connections:
            connection.close()
        else:
            self._connections[target] = connection
        return found


def _rate(described: Described, key: str) -> float | None:
    """Return a broker's rate in bytes/s; None if it is unlimited or not a number."""
    configs: Mapping[str, str] = described.configs
    try:
        rate = int(configs.get(key, _UNLIMITED))
    except ValueError:
        return None
    return None if rate >= _UNLIMITED or rate < 0 else float(rate)
