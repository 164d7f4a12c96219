"""Kafka's own command-line tools, by their classes, and the few things tests do with them all the time."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from tests.cluster.jars import LOG4J, class_archive, class_path, java

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
PRODUCER_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE: Final = "org.apache.kafka.tools.ConsumerPerformance"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_SHARE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
CONSUMER_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
REASSIGN_PARTITIONS: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
METADATA_QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
DELEGATION_TOKENS: Final = "org.apache.kafka.tools.DelegationTokenCommand"

_TOOL_SECONDS_MAX: Final = 120.0


class ToolError(RuntimeError):
    """A tool ended with an exit code other than 0; the message holds what it printed."""


def command(tool: str, *arguments: str, jvm_options: Sequence[str] = ("-Xmx256m",)) -> list[str]:
    """Return the command line of a tool, for those who start it themselves."""
    logging = [f"-Dlog4j2.configurationFile={LOG4J}", "-Dsluice.log.level=WARN"]
    return [java(), *class_archive(), *jvm_options, *logging, "-cp", class_path(tools=True), tool, *arguments]


def run(tool: str, *arguments: str, seconds: float = _TOOL_SECONDS_MAX, text: str | None = None) -> str:
    """Run a tool to its end, `text` on its standard input, and return what it printed; ToolError if it failed."""
    # A short-lived JVM is quicker without the second compiler.
    line = command(tool, *arguments, jvm_options=("-Xmx256m", "-XX:TieredStopAtLevel=1"))
    done = subprocess.run(
        line,
        input=text or "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise ToolError(f"{tool} {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def configs(bootstrap: str, *words: str) -> str:
    """Run kafka-configs."""
    return run(CONFIGS, "--bootstrap-server", bootstrap, *words)


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replication: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic with Kafka's own tool (about 1.5 s; the fixture `topic` is quicker)."""
    settings = [word for key, value in (configs or {}).items() for word in ("--config", f"{key}={value}")]
    run(
        TOPICS,
        *("--bootstrap-server", bootstrap, "--create", "--topic", topic),
        *("--partitions", str(partitions), "--replication-factor", str(replication)),
        *settings,
    )


def set_client_quota(bootstrap: str, client_id: str, **rates: int) -> None:
    """Give the brokers a quota of their own: `set_client_quota(b, "a", producer_byte_rate=2_000_000)`."""
    added = ",".join(f"{key}={value}" for key, value in rates.items())
    configs(
        bootstrap, "--alter", "--entity-type", "clients", "--entity-name", client_id, "--add-config", added
    )
