"""Sluice's own quotas: the file, the definitions in memory, and the answers to the quota API (KIP-546).

pace        loops that leave the processor to the event loop
store       the file and the definitions that came from it; blocks
permissions who may ask
answers     a request's frame → an answer's
desk        the one thread that does all this, and the event loop's side of it
"""

from proxy.quota_store.desk import QuotaDesk
from proxy.quota_store.store import QuotaStore, StoreError

__all__ = ["QuotaDesk", "QuotaStore", "StoreError"]
