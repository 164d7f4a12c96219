"""The ranges a client is told, by their bytes."""

from protocol.messages.api_versions import rewrite
from tests.unit.protocol.hex_frames import framed


def test_ranges_are_cut_and_unknown_apis_dropped() -> None:
    # Version 0: Produce 0-99, Fetch 4-18, API 500, Metadata from a version that is not served.
    frame = framed("00000007 0000 00000004 0000 0000 0063 0001 0004 0012 01f4 0000 0001 0003 0020 0021")
    # Produce keeps its minimum of 0, by which librdkafka knows that it may compress.
    assert rewrite(frame, 0) == framed("00000007 0000 00000002 0000 0000 000d 0001 0004 0012")


def test_flexible_answer_keeps_tags_and_what_follows() -> None:
    # Version 4: one API with an unknown tag; throttle time; one tagged feature.
    frame = framed("00000007 0000 02 0012 0000 0009 01 07 01 aa 00000000 01 00 01 01")
    assert rewrite(frame, 4) == framed("00000007 0000 02 0012 0000 0005 01 07 01 aa 00000000 01 00 01 01")


def test_refused_version_is_answered_in_version_0() -> None:
    frame = framed("00000007 0023 00000001 0012 0000 0009")
    assert rewrite(frame, 5) == framed("00000007 0023 00000001 0012 0000 0005")
