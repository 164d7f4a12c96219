"""`make matrix`: the suites of real brokers before each release of Kafka, and before brokers that are not Apache's."""

__all__: list[str] = []
