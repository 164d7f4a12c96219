"""Clients that wait for more than half of their time, in one process or in several.

Each process judges the clients of its own connections (`proxy.explain.waiting`). A client waits when it does in one of
the processes, since its worst connection counts; it has ended when it has in all.
"""

from proxy.events import Tell
from proxy.events.kinds import Waiting, client_waits, client_waits_ended, clients_wait
from proxy.explain.rules import entity_text, in_force
from proxy.explain.waiting import Judgement, Waiter
from quotas.definitions.definitions import Definitions


class Waits:
    """The clients that wait, of all processes.

    Args:
        definitions: the quotas in force.
        mutations_rate: `quotas.partition_mutations_rate`.
    """

    def __init__(self, tell: Tell, definitions: Definitions, mutations_rate: float | None) -> None:
        self._tell = tell
        self._definitions = definitions
        self._mutations_rate = mutations_rate
        self._sources: dict[tuple[str, str], set[int]] = {}

    def take(self, source: int, judgement: Judgement) -> None:
        """Take one process's judgement."""
        for waiter in judgement.begun:
            sources = self._sources.setdefault((waiter.user, waiter.client_id), set())
            if not sources:
                self._tell(client_waits(self._described(waiter)))
            sources.add(source)
        for waiter in judgement.ended:
            self._end(source, waiter)
        if judgement.others:
            self._tell(clients_wait(judgement.others))

    def ended(self, source: int) -> None:
        """A process has ended, and its connections with it."""
        gone = [key for key, sources in self._sources.items() if source in sources]
        for user, client_id in gone:
            self._end(source, Waiter(user, client_id, 0.0, None))

    def _end(self, source: int, waiter: Waiter) -> None:
        key = waiter.user, waiter.client_id
        sources = self._sources.get(key, set())
        sources.discard(source)
        if not sources and self._sources.pop(key, None) is not None:
            self._tell(client_waits_ended(Waiting(waiter.user, waiter.client_id, waiter.part)))

    def _described(self, waiter: Waiter) -> Waiting:
        user, client_id, part, rule = waiter
        if rule is None:
            return Waiting(user, client_id, part)
        found = in_force(rule, self._definitions, user, client_id, self._mutations_rate)
        if found is None:
            return Waiting(user, client_id, part, rule.key)
        return Waiting(user, client_id, part, rule.key, entity_text(found), found.value)
