"""The topic of a log: its required properties, the look-up of its actual ones, and its creation."""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kafka_client import ASKING_FAILS, Connection, Login, Request, metadata, topics
from proxy.system.errors import reason
from proxy.system.logs import event
from proxy.topics.records import Problem

T = TypeVar("T")
logger = logging.getLogger(__name__)


# The access of a log to its cluster: addresses, TLS and login, and single requests on Sluice's own connections.
#
# Topics are looked up and created with `kafka_client`, which limits responses and knows topic ids; records are read and
# written with aiokafka, which gets the same addresses, certificates and login. A password is read for each client that
# is made, so that a changed file needs no restart.


_SECONDS_MAX: Final = 5.0  # of one request to one broker
_PROBLEMS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Access:
    """What Sluice's own clients need to connect to one cluster: brokers, login and TLS.

    Args:
        bootstrap: host and port of some of its brokers.
        login: authenticates Sluice's own connections, and aiokafka's; None without SASL.
        tls: returns the TLS context in force; None for plaintext.
    """

    bootstrap: Sequence[tuple[str, int]]
    login: Login | None = None
    tls: Callable[[], ssl.SSLContext] | None = None

    async def ask(self, request: Request[T], satisfied: Callable[[T], bool] = lambda _: True) -> T:
        """Send a request to one broker after another until `satisfied` returns True for a response, and return it.

        If no response satisfies, the last one is returned.

        Raises:
            OSError: no broker has responded; the message says why.
        """
        problems: list[str] = []
        last: T | None = None
        for host, port in self.bootstrap:
            try:
                async with asyncio.timeout(_SECONDS_MAX):
                    last = await self._send(host, port, request)
            except ASKING_FAILS as error:
                problems.append(f"{host}:{port}: {reason(error, _SECONDS_MAX)}")
                continue
            if satisfied(last):
                return last
        if last is not None:
            return last
        raise OSError("; ".join(problems[:_PROBLEMS_MAX]) or "no broker is known")

    async def _send(self, host: str, port: int, request: Request[T]) -> T:
        tls = None if self.tls is None else self.tls()
        connection = await Connection.open(host, port, tls=tls, login=self.login)
        try:
            return request.read(await connection.send(request))
        finally:
            connection.close()


REPLICAS_WANTED: Final = 3
_IN_SYNC_WANTED: Final = 2
_CLEANUP_POLICY: Final = "cleanup.policy"

_OK: Final = 0
_UNKNOWN_TOPIC: Final = 3
_LEADER_NOT_AVAILABLE: Final = 5
_INVALID_TOPIC: Final = 17
_TOPIC_DENIED: Final = 29
_CLUSTER_DENIED: Final = 31
_EXISTS: Final = 36
_NOT_CONTROLLER: Final = 41


def log_problem(into: logging.Logger, topic: str, problem: Problem) -> None:
    """Write an error line to the logger `into`: the topic cannot be used, and why."""
    event(into, logging.ERROR, "topic cannot be used", topic=topic, cause=problem.cause, detail=problem.text)


class ProblemError(Exception):
    """A topic cannot be used.

    Attributes:
        problem: the reason, with its cause.
        topic_id: the topic's id (16 bytes); empty if it is not known.
    """

    def __init__(self, cause: str, text: str, topic_id: bytes = b"") -> None:
        super().__init__(text)
        self.problem = Problem(cause, text)
        self.topic_id = topic_id


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The properties that one of Sluice's own topics must have.

    Args:
        name: the topic's name.
        cleanup_policy: the only `cleanup.policy` that is accepted.
        partitions: how many it must have at least; it is created with so many.
        one_partition: whether a topic with several partitions is refused, since its records have no common order.
        configs: further configs for creating the topic; if an existing topic has other values, that is only logged.
    """

    name: str
    cleanup_policy: str = "compact"
    one_partition: bool = True
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """The state of an existing topic in the cluster, compared with its `TopicSpec`.

    Attributes:
        topic_id: the topic's id, 16 bytes.
        write_problem: why Sluice's user may not append records; None if it may.
        differences: the configs whose values differ from `TopicSpec.configs`.
    """

    topic_id: bytes
    write_problem: Problem | None
    differences: tuple[str, ...] = ()


async def find(access: Access, spec: TopicSpec) -> Found | None:
    """Look up the topic and check its properties; returns None if it does not exist.

    Raises:
        ProblemError: no broker responds, or the topic cannot be used: Sluice's user may not read it, or it has other
            properties than `spec` requires.
    """
    seen = await _ask(access, topics.look(spec.name), lambda found: found.error_code != _UNKNOWN_TOPIC)
    if seen.error_code == _UNKNOWN_TOPIC:
        return None
    if seen.error_code == _TOPIC_DENIED:
        raise ProblemError("denied", _denied(spec, "Describe"))
    if seen.error_code == _INVALID_TOPIC:
        raise ProblemError("failed", f"{spec.name!r} is not a valid name of a topic")
    if seen.error_code not in (_OK, _LEADER_NOT_AVAILABLE):
        raise ProblemError("failed", f"topic {spec.name}: the broker responds with error {seen.error_code}")
    if not _may(seen, topics.READ):
        raise ProblemError("denied", _denied(spec, "Read"), seen.topic_id)
    if spec.one_partition and seen.partitions != 1:
        text = f"topic {spec.name} has {seen.partitions} partitions, and must have 1, or its records have no order"
        raise ProblemError("partitions", text, seen.topic_id)
    if seen.partitions < spec.partitions:
        text = f"topic {spec.name} has {seen.partitions} partitions, and must have {spec.partitions}"
        raise ProblemError("failed", text, seen.topic_id)
    differences = await _check_configs(access, spec, seen.topic_id)
    may_write = _may(seen, topics.WRITE)
    write_problem = None if may_write else Problem("denied", _denied(spec, "Write"))
    return Found(seen.topic_id, write_problem, differences)


async def create(access: Access, spec: TopicSpec) -> None:
    """Create the topic with as many partitions as it must have, unless another process has just done so.

    Raises:
        ProblemError: the brokers refuse, or none responds.
    """
    seen = await _ask(access, topics.look(spec.name), lambda _: True)
    replicas = max(1, min(REPLICAS_WANTED, seen.brokers))
    in_sync = _IN_SYNC_WANTED if replicas >= REPLICAS_WANTED else 1
    settings = {_CLEANUP_POLICY: spec.cleanup_policy, "min.insync.replicas": str(in_sync), **spec.configs}
    request = topics.create(spec.name, spec.partitions, replicas, settings)
    code, message = await _ask(access, request, lambda found: found[0] != _NOT_CONTROLLER)
    if code == _EXISTS:
        return
    if code in (_TOPIC_DENIED, _CLUSTER_DENIED):
        raise ProblemError("denied", f"topic {spec.name} does not exist, and {_denied(spec, 'Create')}")
    if code != _OK:
        raise ProblemError(
            "failed", f"topic {spec.name} cannot be created: {message or 'no message'} (error {code})"
        )
    event(logger, logging.INFO, "topic created", topic=spec.name, replicas=replicas, min_insync=in_sync)


async def _check_configs(access: Access, spec: TopicSpec, topic_id: bytes) -> tuple[str, ...]:
    request = metadata.describe_topics([spec.name], [_CLEANUP_POLICY, *spec.configs])
    differences: list[str] = []
    for described in await _ask(access, request, lambda _: True):
        if described.error_code in (_TOPIC_DENIED, _CLUSTER_DENIED):
            raise ProblemError("denied", _denied(spec, "DescribeConfigs"), topic_id)
        policy = described.configs.get(_CLEANUP_POLICY)
        if described.error_code == _OK and policy is not None and policy != spec.cleanup_policy:
            text = f"topic {spec.name} has cleanup.policy={policy}, and must have {spec.cleanup_policy}"
            raise ProblemError("cleanup_policy", text, topic_id)
        for name, wanted in spec.configs.items():
            value = described.configs.get(name, wanted)
            if value != wanted:
                differences.append(f"{name} is {value}, Sluice would set {wanted}")
    return tuple(differences)


async def _ask(access: Access, request: Request[T], satisfied: Callable[[T], bool]) -> T:
    try:
        return await access.ask(request, satisfied)
    except OSError as error:
        raise ProblemError("unreachable", str(error)) from error


def _may(seen: topics.TopicLook, operation: int) -> bool:
    return seen.operations is None or operation in seen.operations


def _denied(spec: TopicSpec, operation: str) -> str:
    return f"an ACL denies {operation} on topic {spec.name} to Sluice's own user"


# The thread with its own event loop in which all use of aiokafka runs.
#
# aiokafka decodes responses and record batches on its event loop; on the proxy's own loop that would delay clients.
# Python's threads share one interpreter lock, so the code that runs here works in small portions.


_END_SECONDS_MAX: Final = 5.0


class LoopThread:
    """A daemon thread with an event loop of its own, in which aiokafka runs; it starts when it is created."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_ignored)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the thread; any other thread may call this and wait for the future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel all coroutines, wait for their end for a bounded time, and end the thread. Blocks."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * _END_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS_MAX))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _ignored(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore the loop's report of an exception in a cancelled task of aiokafka; Sluice's own tasks catch all theirs."""
    logger.debug(
        "the topics' event loop reports: %s", context.get("message"), exc_info=context.get("exception")
    )
