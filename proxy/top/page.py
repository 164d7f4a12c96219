"""What all members say at one moment. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from commandline.amounts import count, printable
from proxy.v1.documents import Broker, ClientList, Status
from proxy.v1.merging import merge_brokers, merge_clients, one_budget
from proxy.v1.missing import lacks

WINDOWS: Final = {10: "10 s", 60: "minute", 900: "15 min"}
_PROBLEM_CHARACTERS_MAX: Final = 200


class MemberState(NamedTuple):
    """The last documents of one member.

    Args:
        admin: its admin port, as given.
        problem: why it says nothing; else "".
        missing: its workers whose clients it lacks.
    """

    admin: str
    status: Status | None
    clients: ClientList | None
    brokers: tuple[Broker, ...]
    problem: str
    missing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the fleet, or its address."""
        return (self.status.member if self.status else "") or self.admin


class Page(NamedTuple):
    """All members' clients over a window that ends at a time."""

    at: datetime
    window: int
    members: tuple[MemberState, ...]
    clients: ClientList
    brokers: tuple[Broker, ...]


def merge(members: Sequence[MemberState], at: datetime, window: int) -> Page:
    """Return what the members say together; what does not respond is left out of the clients."""
    lists = [one.clients for one in members if one.clients is not None]
    clients = merge_clients(lists, shared=_shared(members))
    return Page(at, window, tuple(members), clients, merge_brokers(one.brokers for one in members))


def heading(page: Page) -> str:
    """Return the line above all: time, window, what quotas do, how many clients and members."""
    known = [one.status for one in page.members if one.status is not None]
    modes = " and ".join(sorted({_mode(status) for status in known})) or "no member responds"
    members = f", {count(len(page.members), 'member')}" if len(page.members) > 1 else ""
    return (
        f"sluice top  {page.at:%H:%M:%S}  last {WINDOWS[page.window]}  "
        f"{modes}  {count(page.clients.total, 'client')}{members}"
    )


def warnings(page: Page) -> Iterator[str]:
    """Yield what an operator must not miss: quotas that are not enforced, members and workers that are silent."""
    for one in page.members:
        name = printable(one.name)
        if one.problem:
            yield f"{name} does not respond: {printable(one.problem)[:_PROBLEM_CHARACTERS_MAX]}"
            continue
        if one.missing:
            yield printable(lacks(one.name, one.missing))
        if one.status is None:
            continue
        if not one.status.enforcing and one.status.switched:
            yield f"{name}: enforcement is OFF since {printable(one.status.switched)}"
        elif not one.status.enforcing:
            yield f"{name}: quotas are NOT enforced"
        elif one.status.mode == "observe":
            yield f"{name}: quotas are only observed"
    if not _shared(page.members):
        yield "these members are no fleet, each has its own budgets: rates are of the member where they are highest"


def _shared(members: Sequence[MemberState]) -> bool:
    """Whether the members share their budgets."""
    return one_budget([one.status.member for one in members if one.status is not None])


def _mode(status: Status) -> str:
    if not status.enforcing:
        return "NOT ENFORCING" if status.mode != "observe" else "observing"
    return "observing" if status.mode == "observe" else "enforcing"
