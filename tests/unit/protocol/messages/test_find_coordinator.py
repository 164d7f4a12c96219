"""Coordinators by their bytes."""

from protocol.messages.addresses import rewrite_find_coordinator
from tests.unit.protocol.hex_frames import framed, moved_address


def test_coordinator_is_replaced() -> None:
    # Version 0: correlation id, no error, node 1, host, port.
    assert rewrite_find_coordinator(
        framed("00000007 0000 00000001 0002 6162 00000009"), 0, moved_address
    ) == framed(f"00000007 0000 00000001 0003 636465 {19101:08x}")


def test_coordinator_that_is_never_named_is_not_available_yet() -> None:
    # Version 2: correlation id, throttle time, no error, null message, node 5, host, port.
    frame = framed("00000007 00000000 0000 ffff 00000005 0002 6162 00000009")
    # Error 15, COORDINATOR_NOT_AVAILABLE; node -1, no host, port -1.
    assert rewrite_find_coordinator(frame, 2, moved_address) == framed(
        "00000007 00000000 000f ffff ffffffff 0000 ffffffff"
    )


def test_each_coordinator_of_a_batch_is_rewritten_by_itself() -> None:
    # Version 4: tags in the header, throttle time; "g" at 1, "h" at 5, "i" with an error; no tags.
    frame = framed(
        "00000007 00 00000000 04"
        "02 67 00000001 03 6162 00000009 0000 00 00"
        "02 68 00000005 03 6162 00000009 0000 00 00"
        "02 69 ffffffff 01 ffffffff 000e 01 00"
        "00"
    )
    assert rewrite_find_coordinator(frame, 4, moved_address) == framed(
        "00000007 00 00000000 04"
        f"02 67 00000001 04 636465 {19101:08x} 0000 00 00"
        "02 68 ffffffff 01 ffffffff 000f 00 00"
        "02 69 ffffffff 01 ffffffff 000e 01 00"
        "00"
    )


def test_error_has_no_node_and_stays() -> None:
    frame = framed("00000007 00000000 000e ffff ffffffff 0000 ffffffff")
    assert rewrite_find_coordinator(frame, 1, moved_address) == frame
