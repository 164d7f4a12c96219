"""A capacity that classes of clients share, on real brokers (`make capacity`)."""
