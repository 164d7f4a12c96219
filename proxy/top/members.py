"""Asks members, each in a thread of its own: what is silent stalls no other.

The threads are daemons, so that the end of the command waits for no member. A member that was silent is asked again,
and not waited for; one whose question is still open is not asked a second time.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from commandline.amounts import printable
from proxy.system.errors import SluiceError
from proxy.top.page import MemberState, Page, merge
from proxy.v1.documents import brokers, clients, status
from proxy.v1.fields import DocumentError
from proxy.v1.members import merge_verdicts, read_verdict
from proxy.v1.missing import lacks, missing_workers
from proxy.v1.verdict import verdict

SECONDS_MAX: Final = 6.0  # for all members together
Document = Mapping[str, Any]
Read = Callable[[str, str], Document]
ReadAll = Callable[[Sequence[str], str], Mapping[str, Document | SluiceError]]


class _Asked:
    """One member, and its last state."""

    def __init__(self, admin: str) -> None:
        self.admin = admin
        self.state = MemberState(admin, None, None, (), "")
        self.window = 0  # that `state` is of
        self.done = threading.Event()
        self.done.set()


class Members:
    """All members that the command names.

    Args:
        read: reads a page of an admin port; a SluiceError if it cannot.
        read_all: reads a page of several, in a limited time however slowly they send; why not, where it cannot.
    """

    def __init__(
        self, admins: Sequence[str], read: Read, read_all: ReadAll, seconds_max: float = SECONDS_MAX
    ) -> None:
        self._members = tuple(_Asked(admin) for admin in dict.fromkeys(admins))
        self._read = read
        self._read_all = read_all
        self._seconds_max = seconds_max

    def page(self, window: int) -> Page:
        """Ask all members, and return what they say."""
        deadline = time.monotonic() + self._seconds_max
        for one in self._members:
            if one.done.is_set():
                one.done.clear()
                threading.Thread(
                    target=self._ask, args=(one, window), name=f"member {one.admin}", daemon=True
                ).start()
        for one in self._members:
            silent = bool(one.state.problem) and any(not other.state.problem for other in self._members)
            one.done.wait(0 if silent else max(0.0, deadline - time.monotonic()))
        return merge([self._latest(one, window) for one in self._members], datetime.now(UTC), window)

    def verdict(self, user: str, client_id: str, window: int) -> list[str]:
        """Return the verdict of a client as lines, of all members that respond."""
        path = f"/v1/client?{urlencode({'client_id': client_id, 'user': user, 'window': window})}"
        found = []
        problems = [f"{one.admin} does not respond" for one in self._members if one.state.problem]
        names = {one.admin: one.state.name for one in self._members if not one.state.problem}
        for admin, content in self._read_all(tuple(names), path).items():
            if isinstance(content, SluiceError):
                problems.append(f"{admin}: {content}")
            elif "error" not in content:
                try:
                    found.append(read_verdict(names[admin], content))
                    if missing := missing_workers(content):
                        problems.append(lacks(names[admin], missing))
                except DocumentError as error:
                    problems.append(f"{admin}: {error}")
        if not found:
            return [printable(problem) for problem in problems] or ["not seen in this window"]
        said = [printable(problem) for problem in problems]
        return [*verdict(merge_verdicts(found, ())), *(["", *said] if said else [])]

    def _latest(self, one: _Asked, window: int) -> MemberState:
        if not one.done.is_set():
            problem = one.state.problem or f"no response within {self._seconds_max:g} s"
            one.state = MemberState(one.admin, one.state.status, None, (), problem)
        elif one.window != window:  # asked before the window was changed
            one.state = one.state._replace(clients=None)
        return one.state

    def _ask(self, one: _Asked, window: int) -> None:
        latest = MemberState(one.admin, None, None, (), "internal error")  # unless it is replaced below
        try:
            shown = status(self._read(one.admin, "/v1/status"))
            name = shown.member or one.admin
            lists = self._read(one.admin, f"/v1/clients?window={window}")
            found = clients(lists, name)
            times = self._read(one.admin, "/v1/brokers")
            missing = tuple(dict.fromkeys((*missing_workers(lists), *missing_workers(times))))
            latest = MemberState(one.admin, shown, found, brokers(times), "", missing)
        except (SluiceError, DocumentError) as error:
            latest = MemberState(one.admin, None, None, (), str(error))
        finally:
            one.state, one.window = latest, window
            one.done.set()
