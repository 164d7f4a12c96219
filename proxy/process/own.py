"""What is Sluice's own in the cluster, as the configuration says, and the log lines of what is refused for it."""

import logging
from collections.abc import Callable
from typing import Final

from proxy.channel import OwnNames, own_names
from proxy.clock import now_ms
from proxy.config import Config
from proxy.logs import event

AGAIN_MS: Final = 600_000
KNOWN_MAX: Final = 256

logger: Final = logging.getLogger(__name__)


def configured_names(config: Config) -> OwnNames | None:
    """Return the topics, groups and transactional ids that this configuration makes Sluice's own; None for none."""
    topics, groups, transactional_ids = set[str](), set[str](), set[str]()
    if config.quotas.store == "topic":
        topics |= {config.quotas.topic, config.quotas.audit_topic} - {""}
    if config.fleet.has_group:
        groups.add(config.fleet.group)
        topics.add(config.fleet.group)  # its members subscribe to it; it need not exist
    if config.reassignment.in_topic:
        topics.add(config.reassignment.journal_topic)
        transactional_ids.add(config.reassignment.journal_topic)
    return own_names(frozenset(topics), frozenset(groups), frozenset(transactional_ids), Refusals())


class Refusals:
    """Logs one line for each address and API in ten minutes, at most KNOWN_MAX of them; all are counted elsewhere.

    Args:
        now_ms: the clock.
    """

    def __init__(self, now_ms: Callable[[], int] = now_ms) -> None:
        self._now_ms = now_ms
        self._said_ms: dict[tuple[str, str], int] = {}  # the oldest first

    def __call__(self, user: str, address: str, client_id: str, api: str) -> None:
        """Take a refusal."""
        now_ms, said = self._now_ms(), self._said_ms
        while said and now_ms - next(iter(said.values())) >= AGAIN_MS:
            del said[next(iter(said))]
        if (address, api) in said or len(said) >= KNOWN_MAX:
            return
        said[address, api] = now_ms
        event(
            logger,
            logging.WARNING,
            "refused a request that names something of Sluice's own",
            user=user,
            address=address,
            client_id=client_id,
            api=api,
        )
