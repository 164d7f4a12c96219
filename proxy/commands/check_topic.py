"""The part of `sluice check` on Sluice's own topics: whether they can be used now. It creates nothing."""

import asyncio
import ssl
from collections.abc import Callable, Iterator

from proxy.config import Config
from proxy.quota_topic import access_of, audit_spec, journal_spec, quota_spec, require_aiokafka
from proxy.system.errors import SluiceError
from proxy.topics.topic import Access, ProblemError, TopicSpec, find
from proxy.unguarded import is_unguarded, own_things, warning_of


def require_topic_library(config: Config) -> None:
    """Refuse a configuration that needs aiokafka where it is not installed.

    Raises:
        StartError: aiokafka is missing.
    """
    if config.quotas.store == "topic":
        require_aiokafka()
    elif config.reassignment.in_topic:
        require_aiokafka('[reassignment] journal = "topic"')
    elif config.fleet.has_group:
        require_aiokafka("[fleet] without holder")


def check_topics(config: Config, tls: Callable[[], ssl.SSLContext] | None) -> Iterator[str]:
    """Yield a line for each topic.

    Args:
        tls: returns the TLS context towards the topics' brokers; None for plaintext.

    Raises:
        SluiceError: the quota topic, or the journal's, cannot be read.
    """
    access = access_of(config.fleet_cluster, tls)
    for spec in _specs(config):
        try:
            yield f"topic {spec.name}: {asyncio.run(_state(access, spec))}"
        except ProblemError as error:
            if spec.name in _needed(config):
                raise SluiceError(error.problem.text) from error
            yield f"warning: {error.problem.text}"


def unguarded_warnings(config: Config, tls: Callable[[], ssl.SSLContext] | None) -> Iterator[str]:
    """Yield a warning if the brokers that keep Sluice's topics or group have no authorizer.

    Args:
        tls: returns the TLS context towards these brokers; None for plaintext.
    """
    things = own_things(config)
    if not things:
        return
    try:
        unguarded = asyncio.run(is_unguarded(access_of(config.fleet_cluster, tls)))
    except OSError as error:
        yield f"whether the brokers have an authorizer was not found out: {error}"
        return
    if unguarded:
        yield warning_of(things)


def _needed(config: Config) -> Iterator[str]:
    """Yield the topics whose problems are errors, not warnings: those of the quotas and of the journal."""
    if config.quotas.store == "topic":
        yield config.quotas.topic
    if config.reassignment.in_topic:
        yield config.reassignment.journal_topic


def _specs(config: Config) -> Iterator[TopicSpec]:
    quotas, fleet = config.quotas, config.fleet
    if quotas.store == "topic":
        yield quota_spec(quotas)
        if quotas.audit_topic:
            yield audit_spec(quotas)
    if config.reassignment.in_topic:
        yield journal_spec(config.reassignment.journal_topic)
    if fleet.has_group:
        yield TopicSpec(fleet.group, one_partition=False)


async def _state(access: Access, spec: TopicSpec) -> str:
    found = await find(access, spec)
    if found is None:
        return "does not exist; Sluice creates it when it starts"
    if found.write_problem is not None:
        return f"can be read only: {found.write_problem.text}"
    return "; ".join(("can be read and written", *found.differences))
