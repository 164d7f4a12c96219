"""Records sent and read back by each kind of client, with any SASL mechanism or over TLS.

Java is Kafka's own console tools. Tokens are unsecured JWTs, which the listeners of `tests.cluster.sasl` take.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tests.cluster import tools
from tests.cluster.sasl import bearer_token, password
from tests.support.numbered import read_all, write_all

_SECONDS: Final = 60
_REQUEST_BYTES_MAX: Final = 2_000_000


class Who(Protocol):
    """Says who a client is, in each client's configuration."""

    def librdkafka(self) -> dict[str, Any]: ...

    def python(self, provider: Any) -> dict[str, Any]:
        """For kafka-python and aiokafka; `provider` makes their own kind of token provider."""

    def java(self, directory: Path) -> str:
        """Write a properties file and return its path."""


@dataclass(frozen=True)
class Credentials:
    """A user of a mechanism. `secret` is the password; none for OAUTHBEARER."""

    user: str
    mechanism: str
    secret: str = ""
    delegation: bool = False

    @classmethod
    def of(cls, user: str, mechanism: str) -> "Credentials":
        """A user of the test clusters with the right password."""
        return cls(user, mechanism, password(user))

    def librdkafka(self) -> dict[str, Any]:
        found: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": self.mechanism}
        if self.mechanism == "OAUTHBEARER":
            return found | {"oauth_cb": lambda _: (bearer_token(self.user), time.time() + 3600)}
        return found | {"sasl.username": self.user, "sasl.password": self.secret}

    def python(self, provider: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": self.mechanism}
        if self.mechanism == "OAUTHBEARER":
            return found | {"sasl_oauth_token_provider": provider(bearer_token(self.user))}
        return found | {"sasl_plain_username": self.user, "sasl_plain_password": self.secret}

    def java(self, directory: Path) -> str:
        modules = "org.apache.kafka.common.security"
        if self.mechanism == "OAUTHBEARER":
            jaas = f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{self.user}";'
        else:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            token = ' tokenauth="true"' if self.delegation else ""
            jaas = f'{modules}.{module} required username="{self.user}" password="{self.secret}"{token};'
        path = directory / f"{self.mechanism}-{'token' if self.delegation else self.user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={self.mechanism}\nsasl.jaas.config={jaas}\n"
        )
        return str(path)


Values = Sequence[bytes]
# Bootstrap, topic, client id, who, a directory, values; gives what is read back.
RoundTrip = Callable[[str, str, str, Who, Path, Values], list[bytes]]


def librdkafka(
    bootstrap: str, topic: str, client_id: str, who: Who, _directory: Path, values: Values
) -> list[bytes]:
    common = {"client.id": client_id, **who.librdkafka()}
    write_all(bootstrap, topic, values, settings=common)
    return read_all(bootstrap, topic, settings=common | {"group.id": client_id})


def kafka_python(
    bootstrap: str, topic: str, client_id: str, who: Who, _directory: Path, values: Values
) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def __init__(self, token: str) -> None:
            super().__init__()
            self._token = token

        def token(self) -> str:
            return self._token

    common = {"bootstrap_servers": bootstrap, "client_id": client_id, **who.python(Provider)}
    producer = KafkaProducer(**common, max_request_size=_REQUEST_BYTES_MAX)
    for sent in [producer.send(topic, value) for value in values]:
        sent.get(_SECONDS)
    producer.close()
    consumer = KafkaConsumer(**common, consumer_timeout_ms=1000 * _SECONDS)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer).value for _ in values]
    consumer.close()
    return found


def aiokafka(
    bootstrap: str, topic: str, client_id: str, who: Who, _directory: Path, values: Values
) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is taken without types
        def __init__(self, token: str) -> None:
            self._token = token

        async def token(self) -> str:
            return self._token

    async def there_and_back() -> list[bytes]:
        common = {"bootstrap_servers": bootstrap, "client_id": client_id, **who.python(Provider)}
        async with asyncio.timeout(_SECONDS):
            async with AIOKafkaProducer(**common, max_request_size=_REQUEST_BYTES_MAX) as producer:
                for value in values:
                    await producer.send_and_wait(topic, value)
            async with AIOKafkaConsumer(**common) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                await consumer.seek_to_beginning()
                return [(await consumer.getone()).value for _ in values]

    return asyncio.run(there_and_back())


def java(
    bootstrap: str, topic: str, client_id: str, who: Who, directory: Path, values: Values
) -> list[bytes]:
    common = (
        *("--bootstrap-server", bootstrap, "--topic", topic, "--command-config", who.java(directory)),
        *("--command-property", f"client.id={client_id}"),
    )
    tools.run(tools.CONSOLE_PRODUCER, *common, text="".join(f"{value.decode()}\n" for value in values))
    limits = ("--max-messages", str(len(values)), "--timeout-ms", str(1000 * _SECONDS))
    read = tools.run(tools.CONSOLE_CONSUMER, *common, "--partition", "0", "--offset", "earliest", *limits)
    return [line for line in read.encode().splitlines() if line in set(values)]


ROUND_TRIPS: Final[dict[str, RoundTrip]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "java": java,
}
