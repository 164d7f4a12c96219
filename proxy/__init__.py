"""The server: sockets, channels, administration. Imports `protocol` and `quotas`; nothing imports it but tests."""
