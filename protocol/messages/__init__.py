"""One module per API: decodes the fields that Sluice reads, and writes those that it changes."""

from protocol.messages.addresses import AddressMap

__all__ = ["AddressMap"]
