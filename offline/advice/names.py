"""Clients as quota entities: the entity of an override, and of the default. Pure.

An override names all parts of a client that `--by` selects; otherwise the client gets no override. A part of the name
would be another entity: (user alice) without a client id is one budget for all of alice's clients, and precedes the
default that each of them has separately. A client with the literal name `<default>` cannot be named (KAFKA-18808).
"""

from offline.options import By
from quotas.definitions.entities import DEFAULT, Entity

__all__ = ["client_entity", "client_name", "default_entity"]


def client_entity(user: str, client_id: str, by: By) -> Entity | None:
    """The entity of exactly this client; None if a quota cannot name it.

    >>> client_entity("alice", "", "user"), client_entity("alice", "", "user-client-id")
    (Entity(user='alice', client_id=None, ip=None, topic=None), None)
    """
    parts = {"user": (user,), "client-id": (client_id,), "user-client-id": (user, client_id)}[by]
    if any(part in ("", DEFAULT.value) for part in parts):
        return None
    return Entity(user if by != "client-id" else None, client_id if by != "user" else None)


def default_entity(by: By) -> Entity:
    """The default entity: of every client without an entity of its own."""
    return Entity(DEFAULT if by != "client-id" else None, DEFAULT if by != "user" else None)


def client_name(user: str, client_id: str) -> str:
    """The client's name for reports.

    >>> client_name("alice", "a"), client_name("", "")
    ('alice a', '(no name)')
    """
    return " ".join(filter(None, (user, client_id))) or "(no name)"
