"""Interop: unmodified clients of seven families against real brokers, direct and through Sluice.

Each family is one small driver program with the same command line and JSON lines on standard output
(`drivers/`). The drivers know nothing of the proxy, and no client is patched or specially configured
for it: what they use are the clients' own defaults for every timeout.
"""

__all__: list[str] = []
