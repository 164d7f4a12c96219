"""The quota API (KIP-546): the quotas file, the definitions in memory, and responses to Describe- and
AlterClientQuotas.

    cooperative     loops in a thread that yield the processor to the event loop
    store           the file and its definitions; blocks
    permissions     which principals may describe and alter quotas
    responses       a request's frame → the response's frame
    advice          messages of refused alterations
    audit           the audit log
    service         the thread for all this, and its interface on the event loop
"""

from proxy.quota_api.service import QuotaService
from proxy.quota_api.store import QuotaStore, StoreError

__all__ = ["QuotaService", "QuotaStore", "StoreError"]
