"""Group requests by their bytes."""

import pytest

from protocol import api
from protocol.errors import TruncatedError
from protocol.messages import groups


@pytest.mark.parametrize("raw", ["0001 67 00000000", "0001 67 ffffffff"])
def test_join_group_that_names_none_counts_with_the_default(raw: str) -> None:
    buf = bytes.fromhex(raw)
    timeout = groups.session_timeout_ms(api.JOIN_GROUP, buf, 0, len(buf), 0)
    assert timeout == groups.SESSION_TIMEOUT_DEFAULT_MS


@pytest.mark.parametrize("raw", ["", "00", "0001 67", "0001 67 000017"])
def test_join_group_that_is_cut_off_is_waited_for(raw: str) -> None:
    buf = bytes.fromhex(raw)
    with pytest.raises(TruncatedError):
        groups.session_timeout_ms(api.JOIN_GROUP, buf, 0, len(buf), 0)


@pytest.mark.parametrize("api_key", sorted(groups.GROUP_APIS - {api.JOIN_GROUP}))
def test_other_group_requests_count_with_the_default(api_key: int) -> None:
    timeout = groups.session_timeout_ms(api_key, b"", 0, 0, 0)
    assert timeout == groups.SESSION_TIMEOUT_DEFAULT_MS


def test_other_requests_are_no_groups() -> None:
    assert groups.session_timeout_ms(api.FETCH, b"", 0, 0, 0) is None
