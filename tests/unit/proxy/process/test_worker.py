"""Large responses are in memory once."""

import pytest

from proxy.channel import SharedResponse
from proxy.process.worker import SharedResponses

LARGE = bytes(100_000)


def head(correlation_id: int) -> bytes:
    return len(LARGE).to_bytes(4, "big") + correlation_id.to_bytes(4, "big")


def test_small_response_is_left_as_it_is() -> None:
    assert SharedResponses().shared(b"small") == b"small"


@pytest.mark.parametrize("more", [b"", b"x"], ids=["equal", "other"])
def test_equal_responses_share_their_rest(more: bytes) -> None:
    responses = SharedResponses()
    one, other = responses.shared(head(1) + LARGE), responses.shared(head(2) + LARGE + more)
    assert isinstance(one, SharedResponse)
    assert isinstance(other, SharedResponse)
    assert (one.rest.obj is other.rest.obj) == (not more)
    assert (bytes(one), bytes(other)) == (head(1) + LARGE, head(2) + LARGE + more)
