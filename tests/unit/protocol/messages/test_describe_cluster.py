"""The cluster's brokers by their bytes."""

import pytest

from protocol.messages.addresses import rewrite_describe_cluster
from tests.unit.protocol.hex_frames import framed, moved_address

# Correlation id, tags; throttle time, no error, no message; then the endpoint type since version 1.
HEAD = "00000007 00 00000000 0000 00"
CLUSTER = "02 78 00000001"
OPERATIONS = "80000000 00"


@pytest.mark.parametrize(("version", "kind", "fenced"), [(0, "", ""), (1, "01", ""), (2, "01", "01")])
def test_brokers_are_replaced_and_hidden_ones_left_out(version: int, kind: str, fenced: str) -> None:
    brokers = f"03 00000001 03 6162 00000009 00 {fenced} 00 00000005 03 6162 00000009 02 72 {fenced} 00"
    named = f"02 00000001 04 636465 {19101:08x} 00 {fenced} 00"
    before = framed(HEAD + kind + CLUSTER + brokers + OPERATIONS)
    assert rewrite_describe_cluster(before, version, moved_address) == framed(
        HEAD + kind + CLUSTER + named + OPERATIONS
    )


def test_controllers_are_never_named() -> None:
    before = framed(HEAD + "02" + CLUSTER + "02 00000001 03 6162 00000009 00 00" + OPERATIONS)
    assert rewrite_describe_cluster(before, 1, moved_address) == framed(
        HEAD + "02" + CLUSTER + "01" + OPERATIONS
    )
