"""DescribeConfigs 1: a few dynamic configs of topics and brokers (KIP-133, KIP-73).

A broker can describe only its own configs. Synonyms are not requested: a value is the one in force, which is a broker's
own config or else the cluster's default.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_client.codec import admin, decode, encode
from kafka_client.request import MIB, Request
from protocol.api import DESCRIBE_CONFIGS

__all__ = ["Described", "describe_brokers", "describe_topics"]

_VERSION: Final = 1
_BYTES_MAX: Final = 8 * MIB  # a list of throttled replicas has up to 32 kB
_TOPIC: Final = 2
_BROKER: Final = 4


class Described(NamedTuple):
    """One resource: its configs by name, without those that have no value."""

    error_code: int
    name: str
    configs: Mapping[str, str]


def describe_topics(names: Sequence[str], keys: Sequence[str]) -> Request[list[Described]]:
    """Describe these keys of topics."""
    return _describe(_TOPIC, names, keys)


def describe_brokers(brokers: Sequence[int], keys: Sequence[str]) -> Request[list[Described]]:
    """Describe these keys of brokers."""
    return _describe(_BROKER, [str(broker) for broker in brokers], keys)


def _describe(kind: int, names: Sequence[str], keys: Sequence[str]) -> Request[list[Described]]:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource(version=_VERSION, resource_type=kind, resource_name=name, configuration_keys=keys)
        for name in names
    ]
    asked = admin.DescribeConfigsRequest(version=_VERSION, resources=resources, include_synonyms=False)
    return Request(DESCRIBE_CONFIGS, _VERSION, encode(asked), _read, _BYTES_MAX)


def _read(frame: bytes) -> list[Described]:
    response = decode(admin.DescribeConfigsResponse, _VERSION, frame)
    return [
        Described(
            one.error_code,
            one.resource_name or "",
            {
                config.name: config.value
                for config in one.configs or ()
                if config.name is not None and config.value is not None
            },
        )
        for one in response.results or ()
    ]
