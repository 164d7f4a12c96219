"""The names of topics for all workers: each name is learned once, and sent to every worker."""

from collections.abc import Callable, Mapping

from quotas.throttles.topic_names import NAMES_MAX, TopicNames


class SharedTopicNames(TopicNames):
    """The known names, for several processes.

    Args:
        learned: called with each new name.
    """

    __slots__ = ("_all", "_learned")

    def __init__(self, learned: Callable[[bytes, str], object]) -> None:
        super().__init__()
        self._learned = learned
        self._all: dict[bytes, str] = {}

    def learn(self, topic_id: bytes, name: str) -> None:
        """Store a topic's name."""
        if self.known(topic_id) == name:
            return
        super().learn(topic_id, name)
        if len(self._all) >= NAMES_MAX:
            del self._all[next(iter(self._all))]
        self._all[topic_id] = name
        self._learned(topic_id, name)

    def all(self) -> Mapping[bytes, str]:
        """Return all known names."""
        return self._all
