"""One module an API: the fields of its messages that Sluice reads, and what it changes in them."""

from protocol.messages.endpoints import AddressMap

__all__ = ["AddressMap"]
