"""Bytes and values of the Kafka protocol: pure functions on buffers, without IO and without a clock.

Decoded is only what a throttling proxy must see; everything else passes as bytes. Nothing of ours is imported
here.
"""

__all__: list[str] = []
