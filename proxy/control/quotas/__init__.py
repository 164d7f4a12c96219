"""The quota API (KIP-546): where quotas are kept, the definitions in memory, and responses to Describe- and
AlterClientQuotas.

    cooperative     loops in a thread that yield the processor to the event loop
    store           where quotas are kept, as the others see it; all stores block
    in_force        the definitions in force, and how a store changes them
    file_store      quotas in a file, or mirrored from the brokers
    topic_store     quotas in a compacted topic, followed by every process
    log             the topic, as its store needs it
    follower        the event loop's side of the topic
    snapshot        the topic's quotas on disk, for a start without Kafka
    topic_metrics   what /metrics shows of the topic
    permissions     which principals may describe and alter quotas
    responses       a request's frame → the response's frame
    advice          messages of refused alterations
    audit           the audit log
    changes         who changes a limit, for events
    opening         the store of a configuration
    origins         who has set a limit, and when
    service         the thread for all this, and its interface on the event loop
"""

from proxy.control.quotas.file_store import FileStore, open_store
from proxy.control.quotas.service import Origins, QuotaService
from proxy.control.quotas.store import QuotaStore, StoreError

__all__ = ["FileStore", "Origins", "QuotaService", "QuotaStore", "StoreError", "open_store"]
