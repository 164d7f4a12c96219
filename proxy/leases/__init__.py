"""Leases of followers' quotas between processes (KIP-73 over several proxies): their bytes, and both ends of them.

    messages    requests, answers, refusals <-> bytes: pure
    frames      length and signature around them
    holder      the port that answers
    client      asks once a period, and keeps the followers' limits true
    sharing     what of it a process has by its configuration

Who gets what is decided in `quotas.leases`.
"""

from proxy.leases.client import LeaseClient
from proxy.leases.holder import LeaseHolder
from proxy.leases.sharing import LeaseSharing

__all__ = ["LeaseClient", "LeaseHolder", "LeaseSharing"]
