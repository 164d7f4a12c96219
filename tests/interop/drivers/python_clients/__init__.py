"""Drivers for the clients that have a Python interface: librdkafka, aiokafka, kafka-python."""

__all__: list[str] = []
