"""The fleet that a configuration asks for, for a process that uses its shares itself."""

from collections.abc import Callable

from proxy.clock import now_ms
from proxy.config import Config
from proxy.fleet.codec import Facts
from proxy.fleet.facts import facts_of
from proxy.fleet.fleet import Fleet, new_lessee
from proxy.topic_log.access import Access
from quotas.engine import Engine
from quotas.replication.replication_quotas import ReplicationQuotas
from quotas.sharing.budgets import Budgets
from quotas.sharing.followers import FollowerShares
from quotas.sharing.lessee import Lessee

__all__ = ["join_fleet", "says"]


def join_fleet(
    config: Config,
    engine: Engine,
    replication: ReplicationQuotas,
    reconsider: Callable[[], None],
    access: Callable[[], Access],
) -> Fleet | None:
    """Create this process's membership, and have the engine use its shares; None without `[fleet]`.

    Args:
        engine: before its first client.
        replication: followers' quotas, which use shares too if brokers replicate through this process.
        reconsider: has waiting requests decided again.
        access: returns the way to the cluster whose group chooses the holder.
    """
    options = config.fleet
    if not options.configured:
        return None
    began_ms = now_ms()
    lessee = new_lessee(options, began_ms)
    budgets = Budgets(engine, lessee, began_ms)
    engine.share(budgets)
    if config.replicates:
        budgets.add(FollowerShares(replication, lessee, reconsider))
    way = access() if options.holder is None else None
    return Fleet(options, lessee, budgets, says(config, lessee, engine), way)


def says(config: Config, lessee: Lessee, engine: Engine) -> Callable[[], Facts]:
    """Return the function that returns what this member says of itself."""
    engine.definitions.keep_digest()
    return lambda: facts_of(config.quotas, lessee.terms.lessees_max, engine.options, engine.definitions)
