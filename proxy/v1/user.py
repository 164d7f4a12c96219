"""What `sluice explain` says of a user: all of its clients, which of them waits most, and its quotas. Pure.

It is made of the rows of /v1/clients of all members that respond.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from commandline.amounts import count, printable
from proxy.explain.parts import NAMES, part_text
from proxy.v1.cause import WAITS_MIN, amount_of, cause, is_over, limit_text
from proxy.v1.documents import Client, ClientList, Quota, waited
from proxy.v1.merging import waiting_order

GUESSES_MAX: Final = 3
_GUESSED_CHARACTERS_MAX: Final = 100  # the time for a comparison grows with the square of it
_GUESSED_NAMES_MAX: Final = 10_000
_ROWS_SHOWN: Final = 10
_OF_USER: Final = "user"
_WINDOWS: Final = {10: "last 10 s", 60: "last minute", 900: "last quarter of an hour"}

Document = Mapping[str, Any]


class Guess(NamedTuple):
    """A client that may be meant."""

    user: str
    client_id: str


def guesses(clients: Iterable[Client], *, user: str | None, client_id: str | None) -> tuple[Guess, ...]:
    """Return the clients with the nearest names: this client id of other users first; at most GUESSES_MAX.

    Args:
        user: what was asked for; None: any.
        client_id: likewise; without one, the guesses are of users, with an empty client id.
    """
    known = [(one.user, one.client_id) for one in clients][:_GUESSED_NAMES_MAX]
    if client_id is None:
        users = dict.fromkeys(name for name, _ in known)
        return tuple(Guess(name, "") for name in _nearest(user or "", users))
    same = [Guess(client_id, "")] if any(client_id and name[0] == client_id for name in known) else []
    same += [Guess(*name) for name in known if name[1] == client_id]
    near = set(_nearest(client_id, dict.fromkeys(name for _, name in known if name != client_id)))
    others = sorted(
        (Guess(*name) for name in known if name[1] in near),
        key=lambda one: user is not None and one.user != user,
    )
    return tuple((same + others)[:GUESSES_MAX])


def _nearest(name: str, names: Iterable[str]) -> list[str]:
    folded = {
        one.casefold(): one for one in names if 0 < len(one) <= _GUESSED_CHARACTERS_MAX
    }  # of several that differ in case, one
    if len(name) > _GUESSED_CHARACTERS_MAX:
        return []
    return [folded[one] for one in get_close_matches(name.casefold(), folded, GUESSES_MAX)]


def user_document(user: str, window: int, found: ClientList, enforcing: bool) -> dict[str, Any]:
    """Return the document of a user.

    Args:
        found: all of its clients, at least one.
        window: in seconds.
    """
    quotas = _quotas(found.clients)
    return {
        "user": user,
        "window_seconds": window,
        "enforcing": enforcing,
        "sentence": _sentence(user, window, found, quotas),
        "clients_total": found.total,
        "waiting": sum(waited(one.times) >= WAITS_MIN for one in found.clients),
        "connections_total": sum(one.connections for one in found.clients),
        "quotas": [
            {"kind": one.kind, "entity": one.entity, "value": one.value, "rate": round(one.rate, 3)}
            for one in quotas
        ],
        "clients": [_client(one) for one in found.clients],
    }


def user_lines(document: Document, found: ClientList) -> Iterator[str]:
    """Yield the lines for people."""
    yield printable(document["sentence"])
    yield ""
    yield f"clients of the {_WINDOWS[document['window_seconds']]}, those that wait longest first:"
    shown = found.clients[:_ROWS_SHOWN]
    names = [printable(one.client_id) or "(no client id)" for one in shown]
    width = max(map(len, names))
    for name, client in zip(names, shown, strict=True):
        yield (
            f"  {name.ljust(width)}  {waited(client.times):>4.0%}  {count(client.connections, 'connection')}  "
            f"{printable(cause(client, ()).text)}"
        )
    if found.total > len(shown):
        yield f"  and {found.total - len(shown)} more; --format json has up to {len(found.clients)}"
    yield ""
    yield f"one of them: sluice explain --client-id {names[0]} --user {printable(document['user'])}"


def _quotas(clients: Iterable[Client]) -> tuple[Quota, ...]:
    """Return the limits that the user's clients share, with the sum of their rates."""
    found: dict[tuple[str, str], Quota] = {}
    for quota in (quota for client in clients for quota in client.quotas if quota.shared_by == _OF_USER):
        key = quota.kind, quota.entity
        own = found.get(key)
        found[key] = quota if own is None else own._replace(rate=own.rate + quota.rate)
    return tuple(found.values())


def _sentence(user: str, window: int, found: ClientList, quotas: Sequence[Quota]) -> str:
    first = max(found.clients, key=waiting_order)
    waiting = [one for one in found.clients if waited(one.times) >= WAITS_MIN]
    texts = []
    whole, name = count(found.total, "client"), first.client_id or "(no client id)"
    if waiting:
        rule = "a quota that is gone now" if first.rule is None else limit_text(first.rule)
        most = f"{name} most, {part_text(waited(first.times))} of the {_WINDOWS[window]}, for {rule}"
        texts.append(f"{len(waiting)} of {whole} of user {user} waited; {most}.")
    else:
        texts.append(f"User {user} has {whole}; none waited for a quota in the {_WINDOWS[window]}.")
    for quota in quotas:
        rate, value = amount_of(quota.kind, quota.rate), amount_of(quota.kind, quota.value)
        over = ": over it" if is_over(quota) else ""
        texts.append(f"Together they take {rate} of {value} ({quota.kind} quota of {quota.entity}){over}.")
    return " ".join(texts)


def _client(one: Client) -> Document:
    rule = one.rule
    return {
        "client_id": one.client_id,
        "connections": one.connections,
        "waited": round(waited(one.times), 4),
        "time": {name: round(part, 4) for name, part in zip(NAMES, one.times, strict=True)},
        "rule": None
        if rule is None
        else {
            "kind": rule.kind,
            "key": rule.key,
            "entity": rule.entity,
            "value": rule.value,
            "enforced": rule.enforced,
        },
        "members": list(one.members),
    }
