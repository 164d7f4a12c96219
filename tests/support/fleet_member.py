"""A member of a fleet as a process of its own, without a proxy around it: it wants one quota, and prints what it has.

    python -m tests.support.fleet_member NAME PORT BOOTSTRAP GROUP SECRET-FILE [PARTS]

With several parts it wants several quotas, which are keys of different parts.

A line of JSON each 100 ms: `proxy.fleet.fleet.Fleet.state` with the shares of all that it wants, and `at`, the
milliseconds of the clock of leases.
SIGTERM has it leave the fleet.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from proxy.config import Address, FleetOptions
from proxy.fleet.fleet import Fleet, new_lessee
from proxy.system.clock import now_ms
from proxy.topics.topic import Access
from quotas.definitions.definitions import Definitions
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import Grants, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts

KEY: Final = "hot"
_KEYS: Final = 24
_SECONDS: Final = 0.1


class Hungry:
    """Wants the whole of each of these quotas."""

    def __init__(self, lessee: Lessee | Parts, keys: Iterable[str]) -> None:
        self._lessee = lessee
        self._wishes = dict.fromkeys(keys, Wish(1.0, 1.0))

    def report(self, now_ms: int) -> Report | None:
        """Return the report that is due."""
        self._lessee.expire(now_ms)
        self._lessee.wish(self._wishes)
        return self._lessee.report(now_ms) if self._lessee.due(now_ms) else None

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply grants."""
        taken = self._lessee.take(grants, now_ms)
        if taken:
            self._lessee.confirm()
        return taken


def state_of(log: Path) -> dict[str, Any]:
    """Return what a member has printed last into its log; nothing before it has."""
    *whole, _ = log.read_text().split("\n")
    found: dict[str, Any] = json.loads(next((line for line in reversed(whole) if line.startswith("{")), "{}"))
    return found


async def main(name: str, port: str, bootstrap: str, group: str, secret: str, parts: str = "1") -> None:
    """Be a member until told to end."""
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    bind = Address("127.0.0.1", int(port))
    options = FleetOptions(
        name=name, members_max=4, bind=bind, group=group, secret_file=Path(secret), parts=int(parts)
    )
    keys = [KEY] if options.parts == 1 else [f"{KEY}-{number}" for number in range(_KEYS)]
    lessee = new_lessee(options, now_ms())
    brokers = [
        (host, int(number)) for host, _, number in (one.rpartition(":") for one in bootstrap.split(","))
    ]
    capacities = [Capacities(Definitions) for _ in range(options.parts)]
    leasing, facts = Hungry(lessee, keys), lambda: {"members_max": "4"}
    fleet = Fleet(options, lessee, leasing, facts, Access(brokers), capacities)
    await fleet.start()
    running = asyncio.create_task(fleet.run())
    while not running.done() and not ends.is_set():
        at_ms = now_ms()
        shares = {key: lessee.share(key, at_ms) for key in keys}
        line = {**fleet.state(), "at": at_ms, "shares": shares}
        print(json.dumps(line), flush=True)
        await asyncio.sleep(_SECONDS)
    if ends.is_set():
        await fleet.close()
        running.cancel()
    else:
        running.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
