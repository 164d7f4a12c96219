"""Group requests by their bytes."""

import pytest

from protocol.errors import TruncatedError
from protocol.messages import groups


@pytest.mark.parametrize("raw", ["0001 67 00000000", "0001 67 ffffffff"])
def test_join_group_that_names_none_counts_with_the_default(raw: str) -> None:
    buf = bytes.fromhex(raw)
    timeout = groups.session_timeout_ms(buf, 0, len(buf), 0)
    assert timeout == groups.SESSION_TIMEOUT_DEFAULT_MS


@pytest.mark.parametrize("raw", ["", "00", "0001 67", "0001 67 000017"])
def test_join_group_that_is_cut_off_is_waited_for(raw: str) -> None:
    buf = bytes.fromhex(raw)
    with pytest.raises(TruncatedError):
        groups.session_timeout_ms(buf, 0, len(buf), 0)
