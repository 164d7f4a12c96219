"""Leases of followers' quotas between processes (KIP-73 over several proxies): protocol, holder and client.

    messages    requests, responses, refusals <-> bytes: pure
    frames      length and signature around a message
    holder      the lease holder's port
    client      asks once a period, and updates the followers' limits
    sharing     the client and the holder that the configuration asks for

Shares are computed in `quotas.sharing.book`.
"""

from proxy.leases.client import LeaseClient
from proxy.leases.holder import LeaseHolder
from proxy.leases.sharing import LeaseSharing

__all__ = ["LeaseClient", "LeaseHolder", "LeaseSharing"]
