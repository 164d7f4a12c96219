"""Clients as quota entities: what an override for one of them can be called, and the default. Pure.

An override has every part that `--by` makes a client of, or there is none. Part of a name is another entity, and a
wrong one: (user alice) without a client id is one budget for all of alice's clients, and comes before the default that
each of them would have had by itself. The literal name `<default>` cannot be written (KAFKA-18808).
"""

from offline.options import By
from quotas.entities import DEFAULT, Entity

__all__ = ["client_entity", "client_name", "default_entity"]


def client_entity(user: str, client_id: str, by: By) -> Entity | None:
    """The entity of one client alone; None: a quota cannot name it.

    >>> client_entity("alice", "", "user"), client_entity("alice", "", "user-client-id")
    (Entity(user='alice', client_id=None, ip=None, topic=None), None)
    """
    parts = {"user": (user,), "client-id": (client_id,), "user-client-id": (user, client_id)}[by]
    if any(part in ("", DEFAULT.value) for part in parts):
        return None
    return Entity(user if by != "client-id" else None, client_id if by != "user" else None)


def default_entity(by: By) -> Entity:
    """The entity of every client that has none of its own."""
    return Entity(DEFAULT if by != "client-id" else None, DEFAULT if by != "user" else None)


def client_name(user: str, client_id: str) -> str:
    """For a person to read.

    >>> client_name("alice", "a"), client_name("", "")
    ('alice a', '(no name)')
    """
    return " ".join(filter(None, (user, client_id))) or "(no name)"
