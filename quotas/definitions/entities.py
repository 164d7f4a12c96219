"""Quota entities: user, client id, IP address, topic, or the default of one of them (KIP-13, KIP-55, KIP-612;
kafka-quotas.md §1.3). Sluice's own are topics, groups of clients, the members of groups, capacities, and entries for
certain times.

A missing part is `None`, the default entity of a part is `DEFAULT`. The literal name "<default>" does not exist here:
it is how the quotas file spells `DEFAULT`. Limits and the order of precedence are in `definitions`.

An entity's *code* is the entity as one string. Large tables keep codes: Python's cyclic garbage collector does not
visit a dict of strings and numbers, while visiting 100,000 tuples would stop the process for tens of milliseconds.
"""

import enum
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple


class Default(enum.Enum):
    """The type of `DEFAULT`: the entity that stands for every name without an entry of its own."""

    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.value


DEFAULT: Final = Default.DEFAULT

Name = str | Default | None


class Entity(NamedTuple):
    """The entity that a quota applies to: a user, a client id, both together, an IP address, a topic, or a group.

    A field is a name, DEFAULT for the default entity, or None if the field is not part of the entity. A group together
    with a user or a client id is the membership of that name in the group.

    Attributes:
        capacity: "broker" for what each broker takes and gives, "cluster" for all brokers together.
        when: the times at which the entry holds, as `quotas.definitions.times` writes them; None: at all times.
    """

    user: Name = None
    client_id: Name = None
    ip: Name = None
    topic: Name = None
    group: str | None = None
    capacity: str | None = None
    when: str | None = None

    def __repr__(self) -> str:
        """Return the entity with the parts that it has."""
        parts = zip(self._fields, self, strict=True)
        return f"Entity({', '.join(f'{part}={name!r}' for part, name in parts if name is not None)})"


def code(
    user: Name,
    client_id: Name,
    ip: Name = None,
    topic: Name = None,
    group: str | None = None,
    capacity: str | None = None,
    when: str | None = None,
) -> str:
    """Return the code of an entity: a string, different for each entity, that serves as a key of dicts.

    >>> code("ann", DEFAULT), code(None, "a"), code("1:", "a"), code(None, None, "::1")
    ('3~:ann', '-=:a', '2=:1:a', 'i=:::1')
    >>> code(None, None, topic="orders"), code(None, None, group="web"), code("ann", None, group="web")
    ('t=:orders', 'g=:web', 'g3u:webann')
    >>> code(None, None, capacity="broker"), code("ann", None, when="hours=sat")
    ('c=:broker', 'w9=:hours=sat3-:ann')
    """
    if when is not None:
        return f"w{len(when)}=:{when}{code(user, client_id, ip, topic, group, capacity)}"
    if group is not None:
        if user is None and client_id is None:
            return f"g=:{group}"
        return f"g{len(group)}{'c' if user is None else 'u'}:{group}{client_id if user is None else user}"
    if capacity is not None:
        return f"c=:{capacity}"
    if topic is not None:
        return "t~:" if topic is DEFAULT else f"t=:{topic}"
    if ip is not None:
        return "i~:" if ip is DEFAULT else f"i=:{ip}"
    if user is None:
        head, user = "-", ""
    elif user is DEFAULT:
        head, user = "~", ""
    else:
        head = str(len(user))
    if client_id is None:
        return f"{head}-:{user}"
    return f"{head}~:{user}" if client_id is DEFAULT else f"{head}=:{user}{client_id}"


def entity_of(text: str) -> Entity:
    """Return the entity that a string made by `code` stands for.

    >>> entity_of("3~:ann")
    Entity(user='ann', client_id=<default>)
    >>> entity_of("i=:::1"), entity_of("t=:orders"), entity_of("g3u:webann"), entity_of("w9=:hours=sat3-:ann")
    (Entity(ip='::1'), Entity(topic='orders'), Entity(user='ann', group='web'), Entity(user='ann', when='hours=sat'))
    """
    head, _, names = text.partition(":")
    kind, sign = head[:-1], head[-1]
    if kind == "i":
        return Entity(ip=DEFAULT if sign == "~" else names)
    if kind == "t":
        return Entity(topic=DEFAULT if sign == "~" else names)
    if kind and kind[0] in "gcw":
        return _own_entity(kind, sign, names)
    user: Name = None
    if kind == "~":
        user = DEFAULT
    elif kind != "-":
        user, names = names[: int(kind)], names[int(kind) :]
    client_id: Name = None
    if sign != "-":
        client_id = DEFAULT if sign == "~" else names
    return Entity(user, client_id)


def _own_entity(kind: str, sign: str, names: str) -> Entity:
    """Return the entity with one of Sluice's own parts: group, capacity, or when."""
    if kind == "c":
        return Entity(capacity=names)
    if kind == "g":
        return Entity(group=names)
    length = int(kind[1:])
    first, rest = names[:length], names[length:]
    if kind[0] == "w":
        return entity_of(rest)._replace(when=first)
    return Entity(user=rest, group=first) if sign == "u" else Entity(client_id=rest, group=first)


def ip_name(text: str) -> str | None:
    """Return the canonical form of an IP address, IPv4 if it is IPv4-mapped; None if it is not an address.

    >>> ip_name("::FFFF:192.0.2.1"), ip_name("2001:db8::0:1"), ip_name("kafka.example.org")
    ('192.0.2.1', '2001:db8::1', None)
    """
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def canonical(entity: Entity) -> Entity:
    """Return the entity with its address in canonical form, so that two spellings of it are one entity.

    >>> canonical(Entity(ip="2001:DB8::0:1")).ip
    '2001:db8::1'
    """
    if not isinstance(entity.ip, str):
        return entity
    return entity._replace(ip=ip_name(entity.ip) or entity.ip)


class BucketKey(NamedTuple):
    """The key of the bucket that a request counts against: user and client id of the entity whose quota applies.

    None: the entity does not name this part, so all users, or all client ids, share the bucket. A group's budget that
    its members share has the group alone.

    The empty client id is a name of its own ("" and not `None`), so that all clients without an id share one bucket
    (KIP-13); Kafka's tags cannot distinguish the two (KAFKA-13341).
    """

    user: str | None
    client_id: str | None
    group: str | None = None
