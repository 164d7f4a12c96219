"""Credentials for every kind of client, and one record there and back with each.

Java is Kafka's own console tools. Tokens are unsecured JWTs, which the listeners of `tests.cluster.sasl` take.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster import tools
from tests.cluster.sasl import bearer_token, password
from tests.support.numbered import read_all, write_all

_SECONDS: Final = 60


@dataclass(frozen=True)
class Credentials:
    """Who, and how. `secret` is the password; none for OAUTHBEARER."""

    user: str
    mechanism: str
    secret: str = ""

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
        """For kafka-python and aiokafka; `provider` makes their own kind of token provider."""
        found: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": self.mechanism}
        if self.mechanism == "OAUTHBEARER":
            return found | {"sasl_oauth_token_provider": provider(bearer_token(self.user))}
        return found | {"sasl_plain_username": self.user, "sasl_plain_password": self.secret}

    def java(self, directory: Path, *, delegation: bool = False) -> str:
        """Write a properties file and return its path."""
        modules = "org.apache.kafka.common.security"
        if self.mechanism == "OAUTHBEARER":
            jaas = f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{self.user}";'
        else:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            token = ' tokenauth="true"' if delegation else ""
            jaas = f'{modules}.{module} required username="{self.user}" password="{self.secret}"{token};'
        path = directory / f"{self.mechanism}-{'token' if delegation else self.user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={self.mechanism}\nsasl.jaas.config={jaas}\n"
        )
        return str(path)


RoundTrip = Callable[[str, str, str, Credentials, Path], bytes]


def librdkafka(bootstrap: str, topic: str, client_id: str, who: Credentials, _directory: Path) -> bytes:
    """Produce one record and return what is read back."""
    common = {"client.id": client_id, **who.librdkafka()}
    write_all(bootstrap, topic, [b"by librdkafka"], settings=common)
    return read_all(bootstrap, topic, settings=common | {"group.id": client_id})[0]


def kafka_python(bootstrap: str, topic: str, client_id: str, who: Credentials, _directory: Path) -> bytes:
    """Produce one record and return what is read back."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def __init__(self, token: str) -> None:
            super().__init__()
            self._token = token

        def token(self) -> str:
            return self._token

    common = {"bootstrap_servers": bootstrap, "client_id": client_id, **who.python(Provider)}
    producer = KafkaProducer(**common)
    producer.send(topic, b"by kafka-python").get(_SECONDS)
    producer.close()
    consumer = KafkaConsumer(**common, consumer_timeout_ms=1000 * _SECONDS)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    value: bytes = next(consumer).value
    consumer.close()
    return value


def aiokafka(bootstrap: str, topic: str, client_id: str, who: Credentials, _directory: Path) -> bytes:
    """Produce one record and return what is read back."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is taken without types
        def __init__(self, token: str) -> None:
            self._token = token

        async def token(self) -> str:
            return self._token

    async def there_and_back() -> bytes:
        common = {"bootstrap_servers": bootstrap, "client_id": client_id, **who.python(Provider)}
        producer = AIOKafkaProducer(**common)
        await producer.start()
        await producer.send_and_wait(topic, b"by aiokafka")
        await producer.stop()
        consumer = AIOKafkaConsumer(**common)
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        value: bytes = (await asyncio.wait_for(consumer.getone(), _SECONDS)).value
        await consumer.stop()
        return value

    return asyncio.run(there_and_back())


def java(bootstrap: str, topic: str, client_id: str, who: Credentials, directory: Path) -> bytes:
    """Produce one record and return what is read back."""
    produce(bootstrap, topic, client_id, who.java(directory), "by Java")
    read = tools.run(
        tools.CONSOLE_CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", "1", "--timeout-ms", str(1000 * _SECONDS)),
        *("--command-config", who.java(directory), "--command-property", f"client.id={client_id}"),
    )
    return next(line for line in read.splitlines() if line.startswith("by ")).encode()


def produce(bootstrap: str, topic: str, client_id: str, properties: str, text: str) -> None:
    """Produce one record with Kafka's console producer."""
    tools.run(
        tools.CONSOLE_PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--command-config", properties),
        *("--command-property", f"client.id={client_id}"),
        text=text + "\n",
    )


ROUND_TRIPS: Final[dict[str, RoundTrip]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "java": java,
}
