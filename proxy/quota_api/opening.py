"""Opens the quotas of a configuration, before the event loop runs."""

import logging

from proxy.config import Config, unenforced
from proxy.quota_api.file_store import FileStore
from proxy.system.logs import event

logger = logging.getLogger(__name__)


def open_store(config: Config) -> FileStore | None:
    """Read the quotas file, and log what has no effect; None for quotas in a topic.

    Raises:
        ConfigError: it cannot be read, or a definition is invalid.
    """
    if config.quotas.store == "topic":
        return None
    source = config.source
    store = FileStore(config.quotas, source.quota_text, source.path, in_fleet=config.fleet.configured)
    for warning in unenforced(store.definitions.entries(), config.quotas.file):
        event(logger, logging.WARNING, "configuration warning", warning=warning)
    return store
