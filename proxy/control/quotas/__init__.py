"""The quota API (KIP-546): where quotas are kept, the definitions in memory, and responses to Describe- and
AlterClientQuotas.

    store           where quotas are kept, as the others see it; the definitions in force; all stores block
    file_store      quotas in a file, or mirrored from the brokers; the store of a configuration
    topic_store     quotas in a compacted topic, followed by every process, and their snapshot on disk
    quota_topic     the topic put together: its thread, the event loop's side, metrics
    responses       a request's frame → the response's frame, with permissions and the audit log
    service         the thread for all this, and its interface on the event loop; who has set a limit, and when
"""

from proxy.control.quotas.file_store import FileStore, open_store
from proxy.control.quotas.service import Origins, QuotaService
from proxy.control.quotas.store import QuotaStore, StoreError

__all__ = ["FileStore", "Origins", "QuotaService", "QuotaStore", "StoreError", "open_store"]
