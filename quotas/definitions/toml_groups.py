"""The `[[group]]` table of the quotas file: its fields, its text, and edits of its lists.

    [[group]]
    name = "team-web"
    client_ids = ["web-*", "frontend"]   # names, and beginnings of names with * behind them
    users = ["svc-web"]
    budget = "together"                  # or "each": each name has the group's budget for itself

In memory each member is an entity of its own, so that concurrent changes of a group both stay.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from quotas.definitions.entities import Entity
from quotas.definitions.kinds import EACH, MEMBER
from quotas.errors import DefinitionError, hint

NAME: Final = "name"
CLIENT_IDS: Final = "client_ids"
USERS: Final = "users"
BUDGET: Final = "budget"
TOGETHER: Final = "together"
FIELDS: Final = (NAME, CLIENT_IDS, USERS, BUDGET)

Limits = Mapping[str, float]


class Group(NamedTuple):
    """What one `[[group]]` table says."""

    name: str
    client_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    each: bool = False

    @property
    def empty(self) -> bool:
        """Whether it says nothing of the group, so that it needs no table."""
        return not self.client_ids and not self.users and not self.each

    def entries(self) -> list[tuple[Entity, dict[str, float]]]:
        """Return the entities that the table stands for; the group itself only if it has a budget for each member."""
        found = [(Entity(client_id=name, group=self.name), {MEMBER: 1.0}) for name in self.client_ids]
        found += [(Entity(user=name, group=self.name), {MEMBER: 1.0}) for name in self.users]
        if self.each:
            found.append((Entity(group=self.name), {EACH: 1.0}))
        return found

    def changed(self, entity: Entity, values: Limits) -> "Group":
        """Return the group after a change of one of its entities."""
        if entity.client_id is not None:
            return self._replace(client_ids=_with(self.client_ids, str(entity.client_id), MEMBER in values))
        if entity.user is not None:
            return self._replace(users=_with(self.users, str(entity.user), MEMBER in values))
        return self._replace(each=EACH in values)


def groups_of(entries: Iterable[tuple[Entity, Limits]]) -> dict[str, Group]:
    """Return the groups that entities stand for, by name, those that need no table included."""
    found: dict[str, Group] = {}
    members: dict[str, tuple[list[str], list[str]]] = {}
    for entity, values in entries:
        if entity.group is None or entity.when is not None:
            continue
        found.setdefault(entity.group, Group(entity.group))
        client_ids, users = members.setdefault(entity.group, ([], []))
        if entity.client_id is not None:
            client_ids.append(str(entity.client_id))
        elif entity.user is not None:
            users.append(str(entity.user))
        elif EACH in values:
            found[entity.group] = Group(entity.group, each=True)
    return {
        name: group._replace(client_ids=tuple(members[name][0]), users=tuple(members[name][1]))
        for name, group in found.items()
    }


def read_group(table: Mapping[str, object], path: str) -> Group:
    """Read the fields of a `[[group]]` table.

    Raises:
        DefinitionError: a field is unknown, missing, or invalid.
    """
    for field in table:
        if field not in FIELDS:
            raise DefinitionError(f"{path}.{field}", f"unknown key; {hint(field, FIELDS)}")
    name, budget = table.get(NAME), table.get(BUDGET, TOGETHER)
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{path}.{NAME}", "must be the name of the group, a string that is not empty")
    if budget not in (TOGETHER, EACH):
        raise DefinitionError(
            f"{path}.{BUDGET}",
            f'must be "{TOGETHER}" (one budget for all) or "{EACH}" (each name has it for itself)',
        )
    group = Group(name, _names(table, CLIENT_IDS, path), _names(table, USERS, path), each=budget == EACH)
    if group.empty:
        raise DefinitionError(path, f"group {name!r} has no {CLIENT_IDS} and no {USERS}")
    return group


def _names(table: Mapping[str, object], field: str, path: str) -> tuple[str, ...]:
    names = table.get(field, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DefinitionError(f"{path}.{field}", "must be a list of strings")
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise DefinitionError(f"{path}.{field}", f"names {twice!r} twice")
    return tuple(names)


def _with(names: tuple[str, ...], name: str, member: bool) -> tuple[str, ...]:
    if member:
        return names if name in names else (*names, name)
    return tuple(other for other in names if other != name)


def render_group(group: Group) -> str:
    """Return the text of a group's `[[group]]` table, with a newline at its end."""
    lines = ["[[group]]\n", f"{NAME} = {quoted(group.name)}\n"]
    for field, names in ((CLIENT_IDS, group.client_ids), (USERS, group.users)):
        if names:
            lines.append(f"{field} = {_list(names)}\n")
    if group.each:
        lines.append(f'{BUDGET} = "{EACH}"\n')
    return "".join(lines)


def quoted(text: str) -> str:
    """Encode a text as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, names))}]"


# ----------------------------------------------------------------------------------------------------
# Edits of a table's text. A list keeps its form and its comments: a name is taken out with its comma, and a new one
# goes behind the last. The caller reads the result again, and writes the table anew where it is not what was wanted.

_ITEM: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\],]')


def edited_group(text: str, before: Group, after: Group) -> str:
    """Return a table's text in which the group is `after`; only lines of what differs are others."""
    for field, old, new in (
        (CLIENT_IDS, before.client_ids, after.client_ids),
        (USERS, before.users, after.users),
    ):
        if old != new:
            text = _edited_list(text, field, old, new)
    if before.each != after.each:
        text = _with_field(text, BUDGET, f'"{EACH if after.each else TOGETHER}"')
    return text


def _edited_list(text: str, field: str, old: tuple[str, ...], new: tuple[str, ...]) -> str:
    match = re.search(rf"^[ \t]*{field}[ \t]*=[ \t]*\[", text, re.MULTILINE)
    if match is None:
        return _with_field(text, field, _list(new))
    items: list[tuple[int, int]] = []  # from where to where each name is
    end = -1
    for item in _ITEM.finditer(text, match.end()):
        if item[0] == "]":
            end = item.start()
            break
        if item[0][0] in "\"'":
            items.append(item.span())
    if end < 0 or len(items) != len(old):
        return text
    added = [name for name in new if name not in old]
    if added:
        text = _added(text, match.end(), items, end, added)
    for index in reversed(range(len(old))):
        if old[index] not in new:
            text = _taken_out(text, items[index])
    return text


def _added(text: str, begin: int, items: list[tuple[int, int]], end: int, added: list[str]) -> str:
    if not items:
        return f"{text[:begin]}{', '.join(map(quoted, added))}{text[end:]}"
    start, last = items[-1]
    line = text.rfind("\n", 0, start) + 1
    alone = line > begin and not text[line:start].strip()  # the last name begins a line: so do the new ones
    separator = f",\n{text[line:start]}" if alone else ", "
    return text[:last] + "".join(f"{separator}{quoted(name)}" for name in added) + text[last:]


def _taken_out(text: str, item: tuple[int, int]) -> str:
    begin, end = item
    behind = re.compile(r"[ \t]*,[ \t]*").match(text, end)
    if behind is not None:
        end = behind.end()
        line = text.rfind("\n", 0, begin) + 1
        if not text[line:begin].strip() and text[end : end + 1] == "\n":
            return text[:line] + text[end + 1 :]  # a line of its own
        return text[:begin] + text[end:]
    before = re.search(r",\s*$", text[:begin])  # the last one, without a comma behind it
    return text[: before.start() if before else begin] + text[end:]


def _with_field(text: str, field: str, value: str) -> str:
    """Return a table's text with this value of a field, which is in one line or was not there."""
    line = re.compile(rf"^([ \t]*{field}[ \t]*=[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\])", re.MULTILINE)
    if line.search(text):
        return line.sub(lambda found: f"{found[1]}{value}", text, count=1)
    name = re.search(rf"^[ \t]*{NAME}[ \t]*=[^\n]*(\r?\n|$)", text, re.MULTILINE)
    if name is None:
        return text
    head = text[: name.end()]
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{head}{'' if head.endswith(chr(10)) else newline}{field} = {value}{newline}{text[name.end() :]}"
