"""A control process as a member of a fleet: it leases its workers what the holder has leased to it.

Brokers replicate through control itself, so it is one more lessee of its own, beside the workers.
"""

from collections.abc import Callable
from typing import Final

from proxy.clock import now_ms
from proxy.config import Config
from proxy.fleet.fleet import Fleet, new_lessee
from proxy.fleet.setup import says
from proxy.process.relay import Relay
from proxy.process.shares import ControlShares, lessee_of, terms_of
from proxy.topic_log.access import Access
from quotas.sharing.budgets import Budgets
from quotas.sharing.followers import FollowerShares
from quotas.sharing.member import Member

__all__ = ["join"]

_CONTROL: Final = 0  # its number among the workers


def join(
    config: Config, workers: int, run: int, relay: Relay, access: Callable[[], Access]
) -> tuple[ControlShares, Fleet | None]:
    """Return what the workers' shares come from, and this process's membership; None without `[fleet]`.

    Args:
        run: identifies this life of the control process.
        relay: control's own, for replication.
        access: returns the way to the cluster whose group chooses the holder.
    """
    options, began_ms = config.fleet, now_ms()
    if not options.configured:
        return ControlShares(terms_of(workers), run, began_ms), None
    terms = terms_of(workers + config.replicates)
    lessee = new_lessee(options, began_ms)
    member = Member(lessee, terms, began_ms)
    shares = ControlShares(terms, run, began_ms, member)
    if config.replicates:
        own = lessee_of(terms, _CONTROL, run, began_ms)
        budgets = Budgets(relay.engine, own, began_ms)
        budgets.add(FollowerShares(relay.replication, own, relay.reconsider))
        shares.use(own, budgets)
    way = access() if options.holder is None else None
    return shares, Fleet(options, lessee, member, says(config, lessee, relay.engine), way)
