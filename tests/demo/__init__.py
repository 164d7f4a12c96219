"""`make demo`: three real brokers, the proxy, and clients with quotas, to watch for half a minute."""

__all__: list[str] = []
