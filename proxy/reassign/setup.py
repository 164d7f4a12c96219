"""The reassignments that a configuration asks for; None where they pass unchanged."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from proxy.cluster import BrokerClient
from proxy.config import Config
from proxy.events import Tell, untold
from proxy.reassign.api import ReadFrame
from proxy.reassign.places import FilePlace, Place
from proxy.reassign.service import Reassignments
from proxy.system.clock import now_ms
from proxy.system.stats import Stats

if TYPE_CHECKING:
    from proxy.reassign.topic_place import AnsweringMember
    from proxy.topics.topic import Access


def make_reassignments(
    config: Config,
    client: BrokerClient,
    start: Callable[[Coroutine[object, object, None]], object],
    read: ReadFrame,
    stats: Stats,
    access: "Callable[[], Access]",
    fleet: "Callable[[], AnsweringMember | None]",
    tell: Tell = untold,
) -> Reassignments | None:
    """Create the executor of reassignments, and what takes requests for it.

    Args:
        start: starts a background task.
        read: has callers' frames parsed.
        access: returns the way to the cluster of a journal in a topic.
        fleet: returns this process's membership, which may be made later; None without `[fleet]`.
        tell: takes events.

    Raises:
        StartError: the journal is in a topic, and aiokafka is not installed, or the secret cannot be read.
    """
    settings = config.reassignment
    if not settings.batches:
        return None
    return Reassignments(settings, _place(config, access, fleet), client, start, now_ms, read, stats, tell)


def _place(
    config: Config, access: "Callable[[], Access]", fleet: "Callable[[], AnsweringMember | None]"
) -> Place:
    settings = config.reassignment
    if not settings.in_topic:
        assert settings.directory is not None, "the configuration was checked"
        return FilePlace(settings.directory)
    from proxy.quota_topic import require_aiokafka, seal_of

    require_aiokafka('[reassignment] journal = "topic"')
    from proxy.reassign.topic_place import TopicPlace

    topic = settings.journal_topic
    seal = seal_of(config, "journal", topic)
    return TopicPlace(topic, access(), fleet if config.fleet.configured else None, seal)
