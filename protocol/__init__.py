"""Bytes and values of the Kafka protocol: pure functions on buffers, without IO and without a clock.

Only the fields that a throttling proxy needs are decoded; all others stay bytes. Imports no other package of Sluice.
"""

__all__: list[str] = []
