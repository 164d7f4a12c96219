"""Whether the brokers that keep Sluice's own topics and group have an authorizer.

Without one every client that reaches these brokers may write to the topics, join the group and end both, past Sluice.
Signatures (`proxy.fleet.election`) keep such a client from having its way, not from disturbing.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka_client.metadata import SECURITY_DISABLED, describe_cluster_acls
from proxy.config import Config
from proxy.metrics.replication import Family
from proxy.system.logs import event

if TYPE_CHECKING:
    from proxy.topics.topic import Access  # loaded only where there are such topics


_ASK_SECONDS: Final = 600.0
_ASK_AGAIN_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


def own_things(config: Config) -> list[str]:
    """Return what Sluice keeps at brokers with this configuration: topics and the group, for people."""
    quotas, fleet, found = config.quotas, config.fleet, list[str]()
    if quotas.store == "topic":
        found += [f"topic {name}" for name in (quotas.topic, quotas.audit_topic) if name]
    if config.reassignment.in_topic:
        found.append(f"topic {config.reassignment.journal_topic}")
    if fleet.has_group:
        found.append(f"group {fleet.group}")
    return found


def warning_of(things: list[str]) -> str:
    """Return the sentence for brokers without an authorizer."""
    return (
        f"the brokers have no authorizer: every client that reaches them can take over or destroy {', '.join(things)}; "
        "set authorizer.class.name at the brokers, and let only Sluice's own user at these (docs/security.md)"
    )


async def is_unguarded(access: "Access") -> bool:
    """Ask the brokers; returns whether they have no authorizer.

    Raises:
        OSError: no broker responds.
    """
    return await access.ask(describe_cluster_acls()) == SECURITY_DISABLED


class Unguarded:
    """Asks now and then, logs one line when brokers are found to have no authorizer, and has the metric.

    Args:
        things: what is kept at them; not empty.
    """

    def __init__(self, access: "Access", things: list[str]) -> None:
        self._access = access
        self._things = things
        self.unguarded = False

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                found = await is_unguarded(self._access)
            except OSError:  # the topics and the group report that themselves
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
                continue
            if found and not self.unguarded:
                event(
                    logger,
                    logging.WARNING,
                    "the brokers have no authorizer: every client can take over what Sluice keeps there",
                    kept=", ".join(self._things),
                )
            self.unguarded = found
            await asyncio.sleep(_ASK_SECONDS)

    def families(self) -> Iterator[Family]:
        """Return the metric."""
        text = "1 while the brokers that keep Sluice's own topics and group have no authorizer"
        yield Family("sluice_brokers_unguarded", "gauge", text, (), [((), float(self.unguarded))])
