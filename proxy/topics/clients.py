"""aiokafka's consumer and producer for one partition; the only module that imports aiokafka.

Non-obvious:

- aiokafka asks for a topic's metadata in a way that creates the topic on brokers with auto.create.topics.enable, with
  the brokers' defaults. A quota topic that an operator deletes would come back empty within a second, so the request is
  replaced by one that creates nothing.
- Parts of aiokafka that are cancelled wait for each other, and for brokers that do not respond. So each call of it is a
  task; when its time is over or its caller is cancelled, the task is cancelled and not waited for.
- A Fetch waits at the broker for up to FETCH_WAIT_MS, and delays every other request of its connection. So the consumer
  sends no request that a client of Sluice waits for.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import aiokafka
import aiokafka.client
from aiokafka import errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.protocol.metadata import MetadataRequest

from kafka_client import Login, LoginError
from proxy.topics.records import HEADER, MARK_BYTES, AppendError, Record
from proxy.topics.topic import Access, ProblemError

T = TypeVar("T")

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024  # of one append
FETCH_BYTES: Final = 256 * 1024  # a batch that is larger comes alone, up to the topic's max.message.bytes
FETCH_WAIT_MS: Final = 500
_RECORDS_MAX: Final = 500  # of one portion, about a millisecond's work
_REQUEST_MS: Final = 10_000
_START_SECONDS_MAX: Final = 10.0
_STOP_SECONDS_MAX: Final = 2.0
_ACKNOWLEDGE_SECONDS_MAX: Final = 18.0
_TRANSACTION_MS: Final = 10_000  # brokers abort what a process that was killed has left open
_TRANSACTION_SECONDS_MAX: Final = 9.0
_CLIENT_ID: Final = "sluice"
_PARTITION: Final = 0
_APPENDS_BETWEEN_PAUSES: Final = 256
_PAUSE_SECONDS: Final = 0.001

_LEFT: Final[set[asyncio.Future[Any]]] = set()
_DENIED: Final = (
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
)
_AWAY: Final = (OSError, TimeoutError, errors.KafkaConnectionError, errors.KafkaTimeoutError)

# Sluice logs each problem once; the library would log it again for each attempt.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
aiokafka.client.MetadataRequest = functools.partial(MetadataRequest, allow_auto_topic_creation=False)


class Reader:
    """Reads the records of a topic's partition 0, in order."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._place = aiokafka.TopicPartition(topic, _PARTITION)
        consumer.assign([self._place])

    async def bounds(self) -> tuple[int, int]:
        """Return the offset of the first record that still exists, and the offset after the last record."""
        first = await self._request_offset(self._consumer.beginning_offsets([self._place]))
        return first, await self.end()

    async def end(self) -> int:
        """Return the offset after the last record."""
        return await self._request_offset(self._consumer.end_offsets([self._place]))

    def seek(self, offset: int) -> None:
        """Set the offset at which the next `read` begins."""
        self._consumer.seek(self._place, offset)

    async def read(self) -> tuple[Sequence[Record], int]:
        """Return the next records, and the offset after them; no records if none arrive within FETCH_WAIT_MS.

        Raises:
            ProblemError: they cannot be read.
        """
        try:
            found, position = await bounded(self._read(), _REQUEST_MS / 1000)
        except errors.TopicAuthorizationFailedError as error:
            text = f"an ACL denies Read on topic {self._place.topic} to Sluice's own user"
            raise ProblemError("denied", text) from error
        except (errors.KafkaError, TimeoutError) as error:
            raise problem_of(error, "read") from error
        return [_record(one) for one in found.get(self._place, ())], position

    async def _read(self) -> tuple[Mapping[Any, Sequence[Any]], int]:
        found = await self._consumer.getmany(self._place, timeout_ms=FETCH_WAIT_MS, max_records=_RECORDS_MAX)
        return found, await self._consumer.position(self._place)

    async def _request_offset(self, request: Coroutine[Any, Any, Any]) -> int:
        try:
            found = await bounded(request, _REQUEST_MS / 1000)
        except (errors.KafkaError, TimeoutError) as error:
            raise problem_of(error, "ask for its offsets") from error
        offset: int = found[self._place]
        return offset


class Writer:
    """Appends records to a topic's partition 0."""

    _deadline_seconds = _ACKNOWLEDGE_SECONDS_MAX

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def append(self, records: Sequence[Record]) -> int:
        """Append records as one batch, so all of them or none; return the offset after the last one.

        Raises:
            AppendError: the records are not appended; or, if the error is `unknown`, they may be.
        """
        batch = self._producer.create_batch()
        for index, record in enumerate(records):
            headers = [(HEADER, record.mark)] if record.mark else []
            if batch.append(key=record.key, value=record.value, timestamp=None, headers=headers) is None:
                raise AppendError(
                    f"{len(records)} changes are more than {BATCH_BYTES_MAX} bytes, which is the most at once"
                )
            if index % _APPENDS_BETWEEN_PAUSES == _APPENDS_BETWEEN_PAUSES - 1:
                await asyncio.sleep(_PAUSE_SECONDS)
        batch.close()
        try:
            done = await bounded(self._send(batch), self._deadline_seconds)
        except errors.TopicAuthorizationFailedError as error:
            raise AppendError(f"an ACL denies Write on topic {self._topic} to Sluice's own user") from error
        except errors.ProducerFenced as error:
            raise AppendError(f"another process appends to topic {self._topic} now", fenced=True) from error
        except errors.MessageSizeTooLargeError as error:
            raise AppendError(
                f"{batch.size()} bytes are more than max.message.bytes of topic {self._topic}"
            ) from error
        except (errors.KafkaError, AssertionError, TimeoutError) as error:
            # Retried by the library until its deadline; any of the attempts may have arrived.
            text = f"topic {self._topic} did not acknowledge it ({_error_text(error)}): it may have been applied or not"
            raise AppendError(text, unknown=True) from error
        offset: int = done.offset
        return offset + len(records)

    async def _send(self, batch: Any) -> Any:
        return await (await self._producer.send_batch(batch, self._topic, partition=_PARTITION))


class FencedWriter(Writer):
    """A writer that appends each batch as a transaction.

    Kafka refuses its batches once another writer with the same transactional id was opened: it is then fenced.
    """

    _deadline_seconds = _TRANSACTION_SECONDS_MAX

    async def _send(self, batch: Any) -> Any:
        await self._producer.begin_transaction()
        sent = await super()._send(batch)
        await self._producer.commit_transaction()
        return sent


@asynccontextmanager
async def open_reader(access: Access, topic: str, *, committed: bool = False) -> AsyncIterator[Reader]:
    """Connect a consumer without a group to a topic's partition 0; it is closed at the end of the context.

    Args:
        committed: whether records of open and aborted transactions are left out (read_committed).

    Raises:
        ProblemError: no broker can be reached, or none accepts the login.
    """
    consumer = aiokafka.AIOKafkaConsumer(
        **await client_options(access),
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed" if committed else "read_uncommitted",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    try:
        await start_client(consumer)
        yield Reader(consumer, topic)
    finally:
        await stop_client(consumer.stop, consumer._client.close)


@asynccontextmanager
async def open_writer(access: Access, topic: str) -> AsyncIterator[Writer]:
    """Connect an idempotent producer, whose batches are appended in order and each once, to partition 0.

    Raises:
        ProblemError: as `open_reader`.
    """
    async with _open_producer(access, enable_idempotence=True) as producer:
        yield Writer(producer, topic)


@asynccontextmanager
async def open_fenced_writer(access: Access, topic: str, fence: str) -> AsyncIterator[FencedWriter]:
    """Connect a transactional producer, and fence every earlier one with the same transactional id.

    Args:
        fence: the transactional id.

    Raises:
        ProblemError: as `open_reader`.
    """
    options = {"transactional_id": fence, "transaction_timeout_ms": _TRANSACTION_MS}
    try:
        async with _open_producer(access, **options) as producer:
            yield FencedWriter(producer, topic)
    except ProblemError as error:
        if isinstance(error.__cause__, errors.TransactionalIdAuthorizationFailed):
            text = f"an ACL denies Write on transactional id {fence} to Sluice's own user"
            raise ProblemError("denied", text) from error
        raise


@asynccontextmanager
async def _open_producer(access: Access, **options: Any) -> AsyncIterator[Any]:
    producer = aiokafka.AIOKafkaProducer(
        **await client_options(access),
        acks="all",
        max_batch_size=BATCH_BYTES_MAX,
        max_request_size=BATCH_BYTES_MAX + 64 * 1024,
        **options,
    )
    try:
        await start_client(producer)
        yield producer
    finally:
        # An idempotent producer retries a batch that was sent once until it has arrived. It must not arrive after it
        # was reported as failed, and there is no public way to end the retries.
        await stop_client(producer._sender.close)
        producer._message_accumulator.fail_all(errors.KafkaTimeoutError())
        await stop_client(producer.stop, producer.client.close)


def _record(found: Any) -> Record:
    mark = b""
    for name, value in found.headers:
        if name == HEADER and value is not None and len(value) == MARK_BYTES:
            mark = bytes(value)
    return Record(found.key, found.value, mark, found.offset)


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Reads the token for OAUTHBEARER at each login."""

    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return await asyncio.to_thread(self._login.password)


async def client_options(access: Access) -> dict[str, Any]:
    """Return the keyword arguments of an aiokafka client: addresses, TLS and login.

    Raises:
        ProblemError: the password cannot be read.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": [f"{host}:{port}" for host, port in access.bootstrap],
        "client_id": _CLIENT_ID,
        "request_timeout_ms": _REQUEST_MS,
    }
    if access.tls is not None:
        options["ssl_context"] = access.tls()
    protocol = "PLAINTEXT" if access.tls is None else "SSL"
    login = access.login
    if login is not None:
        protocol = f"SASL_{protocol}"
        options["sasl_mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = _Token(login)
        else:
            options["sasl_plain_username"] = login.username
            try:
                options["sasl_plain_password"] = await asyncio.to_thread(login.password)
            except LoginError as error:
                raise ProblemError("failed", str(error)) from error
    return {**options, "security_protocol": protocol}


async def start_client(client: Any) -> None:
    """Start an aiokafka consumer or producer, which connects it.

    Raises:
        ProblemError: no broker can be reached, or none accepts the login.
    """
    try:
        await bounded(client.start(), _START_SECONDS_MAX)
    except (errors.KafkaError, OSError, TimeoutError) as error:
        raise problem_of(error, "connect") from error


async def stop_client(*closers: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Close an aiokafka client; a part that has not closed after two seconds, as without a broker, is abandoned.

    Args:
        closers: the functions that close the client's parts, in this order; their errors are ignored.
    """
    for close in closers:
        try:
            await bounded(close(), _STOP_SECONDS_MAX)
        except Exception as error:  # noqa: BLE001 - errors of a client that is discarded are of no use
            logging.getLogger(__name__).debug("a client did not close: %s", error)


async def bounded(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Await a call of aiokafka for at most `seconds`, and return its result.

    Unlike `asyncio.timeout` this does not wait for the end of a call that was cancelled, which may hang.

    Raises:
        TimeoutError: the call takes longer; it is cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if not done:
        _leave(task)
        raise TimeoutError(f"no response within {seconds:g} s")
    if task.cancelled():  # from inside
        raise TimeoutError("the client has cancelled it")
    return task.result()


def _leave(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and take its later result or exception, so that the loop does not log it."""
    _LEFT.add(task)  # the loop itself keeps no task alive
    task.add_done_callback(_forget)
    task.cancel()


def _forget(task: asyncio.Future[Any]) -> None:
    _LEFT.discard(task)
    if not task.cancelled():
        task.exception()


def problem_of(error: BaseException, what: str) -> ProblemError:
    """Convert an error of aiokafka to a ProblemError; `what` is the failed operation, as in "cannot connect"."""
    cause = (
        "denied" if isinstance(error, _DENIED) else "unreachable" if isinstance(error, _AWAY) else "failed"
    )
    return ProblemError(cause, f"cannot {what}: {_error_text(error)}")


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
