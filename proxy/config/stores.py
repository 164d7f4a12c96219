"""`[quotas] store`: where quotas are kept, and what goes with each store; pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.config.options import WITHOUT_GROUPS, Config, QuotaSettings
from proxy.system.errors import ConfigError

OLD_NAME: Final = "source"
_NEW_NAME: Final = "store"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def renamed(tables: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """Give `[quotas] source`, the old name, its new one; return the tables, and a warning if it was there.

    Raises:
        ConfigError: both names are there.
    """
    quotas = tables.get("quotas")
    if not isinstance(quotas, Mapping) or OLD_NAME not in quotas:
        return tables, []
    if _NEW_NAME in quotas:
        raise ConfigError(
            f"quotas.{OLD_NAME}", f"is the old name of {_NEW_NAME}, which is there too: leave it out"
        )
    changed = {_NEW_NAME if name == OLD_NAME else name: value for name, value in quotas.items()}
    return {**tables, "quotas": changed}, [
        f"quotas.{OLD_NAME}: is now called {_NEW_NAME}, with the same values"
    ]


def settled(quotas: QuotaSettings, table: Mapping[str, object]) -> QuotaSettings:
    """Fill in the mode: brokers enforce their own quotas, so a mirror of them only observes by default, without a
    file.
    """
    if quotas.store != "cluster":
        return quotas
    return replace(quotas, file=None, mode=quotas.mode if "mode" in table else "observe")


def store_warnings(quotas: QuotaSettings, file: Path | None, *, in_fleet: bool) -> Iterator[str]:
    """Yield warnings about settings that are probably mistakes with this store.

    Args:
        file: the quotas file as written.
        in_fleet: whether this process is a member of a fleet.
    """
    if in_fleet and quotas.store == "file" and quotas.alter_principals:
        yield (
            'quotas.alter_principals: has no effect with [fleet] and store = "file": a change through one member would '
            'not reach the others; store = "topic" is one truth for all'
        )
    if quotas.store != "cluster":
        return
    if file is not None:
        yield 'quotas.file: has no effect with store = "cluster"'
    if quotas.mode == "enforce":
        yield 'quotas.mode: clients are throttled twice: with store = "cluster" the brokers enforce the same quotas too'


def check_store(config: Config) -> None:
    """Check what `store = "topic"` needs.

    Raises:
        ConfigError: the configuration cannot work.
    """
    quotas = config.quotas
    if quotas.store != "topic":
        return
    if quotas.file is not None:
        problem = (
            'quotas are in a topic (store = "topic"): leave it out, and put the file\'s quotas there once with '
            "sluice quotas apply FILE"
        )
        raise ConfigError("quotas.file", problem, str(quotas.file))
    for key, name in (("topic", quotas.topic), ("audit_topic", quotas.audit_topic)):
        if name:
            check_topic_name(f"quotas.{key}", name)
    if quotas.topic == quotas.audit_topic:
        raise ConfigError("quotas.audit_topic", "must be another topic than quotas.topic", quotas.audit_topic)
    check_topic_cluster(config, '[quotas] store = "topic"')


def check_topic_name(path: str, name: str) -> None:
    """Check that a key is the name of a topic.

    Raises:
        ConfigError: it is not.
    """
    if _TOPIC.fullmatch(name) is None or name in (".", ".."):
        raise ConfigError(path, "is not a valid name of a topic", name)


def check_topic_cluster(config: Config, setting: str) -> None:
    """Check that Sluice can read and write a topic of its own.

    Args:
        setting: what needs the topic, as it is written.

    Raises:
        ConfigError: it cannot.
    """
    if config.fleet_cluster.sasl_mechanism == WITHOUT_GROUPS:
        section = "fleet.cluster" if config.fleet.cluster else "cluster"
        raise ConfigError(f"{section}.sasl_mechanism", f"{WITHOUT_GROUPS} cannot be used with {setting}")
    if config.bootstrap_behind is not None:
        problem = (
            f"with {setting} it must name a listener of the brokers that is not behind Sluice: "
            "the topic's brokers are reached at the addresses that they advertise there"
        )
        raise ConfigError(config.fleet_bootstrap_key, problem, str(config.bootstrap_behind))


# ----------------------------------------------------------------------------------------------------
# What `[reassignment] journal = "topic"` needs; pure.


_SETTING: Final = '[reassignment] journal = "topic"'


def check_journal(config: Config) -> None:
    """Check what a journal in a topic needs.

    Raises:
        ConfigError: the configuration cannot work.
    """
    settings, quotas, fleet = config.reassignment, config.quotas, config.fleet
    if fleet.secret_file and not fleet.configured and quotas.store != "topic" and not settings.in_topic:
        raise ConfigError("fleet.bind", "is needed with fleet.secret_file, or fleet.holder")
    if not settings.in_topic:
        return
    topic = settings.journal_topic
    check_topic_name("reassignment.journal_topic", topic)
    others = {"fleet.group": fleet.group} if fleet.has_group else {}
    if quotas.store == "topic":
        others |= {"quotas.topic": quotas.topic, "quotas.audit_topic": quotas.audit_topic}
    for path, name in others.items():
        if topic == name:
            raise ConfigError("reassignment.journal_topic", f"must be another topic than {path}", topic)
    if fleet.configured and fleet.secret_file is None:
        problem = f"is needed with {_SETTING}: members have reassignments carried out by the holder"
        raise ConfigError("fleet.secret_file", problem)
    check_topic_cluster(config, _SETTING)
