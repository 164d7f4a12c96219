"""A process as a member of a fleet (`[fleet]`): by itself, or as the control process of workers.

A process by itself uses the shares that the holder leases to it. A control process leases its workers what the holder
has leased to it; brokers replicate through control itself, so it is one more lessee of its own, beside the workers.
"""

from collections.abc import Callable
from typing import Final

from proxy.config import Config
from proxy.fleet.client import Leasing
from proxy.fleet.facts import addresses_of, facts_of
from proxy.fleet.fleet import Fleet, new_lessee
from proxy.process.relay import Relay
from proxy.process.shares import ControlShares, lessee_of, terms_of
from proxy.system.clock import now_ms
from proxy.system.hosts import FleetContexts
from proxy.topics.topic import Access
from quotas.sharing.budgets import Budgets
from quotas.sharing.followers import FollowerShares
from quotas.sharing.lessee import Lessee
from quotas.sharing.member import Member

_CONTROL: Final = 0  # its number among the workers


def join(config: Config, relay: Relay, access: Callable[[], Access], tls: FleetContexts) -> Fleet:
    """Have this process use the shares that are leased to it; returns its membership.

    Args:
        relay: before its first client.
        access: returns the way to the cluster whose group chooses the holder.
        tls: what is between members.
    """
    began_ms = now_ms()
    lessee = new_lessee(config.fleet, began_ms)
    budgets = _budgets(config, relay, lessee, began_ms)
    relay.engine.share(budgets)
    return _fleet(config, relay, lessee, budgets, access, tls)


def join_with_workers(
    config: Config, workers: int, run: int, relay: Relay, access: Callable[[], Access], tls: FleetContexts
) -> tuple[ControlShares, Fleet | None]:
    """Return what the workers' shares come from, and this process's membership; None without `[fleet]`.

    Args:
        run: identifies this life of the control process.
        relay: control's own, for replication.
        access: returns the way to the cluster whose group chooses the holder.
        tls: what is between members.
    """
    began_ms = now_ms()
    if not config.fleet.configured:
        return ControlShares(terms_of(workers), run, began_ms), None
    terms = terms_of(workers + config.replicates)
    lessee = new_lessee(config.fleet, began_ms)
    member = Member(lessee, terms, began_ms)
    shares = ControlShares(terms, run, began_ms, member)
    if config.replicates:
        own = lessee_of(terms, _CONTROL, run, began_ms)
        shares.use(own, _budgets(config, relay, own, began_ms))
    return shares, _fleet(config, relay, lessee, member, access, tls)


def _budgets(config: Config, relay: Relay, lessee: Lessee, began_ms: int) -> Budgets:
    """Return the budgets of a process that uses shares; followers' too if brokers replicate through it."""
    budgets = Budgets(relay.engine, lessee, began_ms)
    if config.replicates:
        budgets.add(FollowerShares(relay.replication, lessee, relay.reconsider))
    return budgets


def _fleet(
    config: Config,
    relay: Relay,
    lessee: Lessee,
    leasing: Leasing,
    access: Callable[[], Access],
    tls: FleetContexts,
) -> Fleet:
    engine = relay.engine
    engine.definitions.keep_digest()
    addresses = addresses_of(config.fleet, config.admin.bind)
    return Fleet(
        config.fleet,
        lessee,
        leasing,
        lambda: {
            **facts_of(
                config.quotas,
                config.reassignment,
                lessee.terms.lessees_max,
                engine.options,
                engine.definitions,
            ),
            **addresses,
        },
        access() if config.fleet.holder is None else None,
        tls,
    )
