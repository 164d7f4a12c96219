"""What `[reassignment] journal = "topic"` needs; pure."""

from typing import Final

from proxy.config.options import Config
from proxy.config.store_options import check_topic_cluster, check_topic_name
from proxy.errors import ConfigError

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
