"""What the admin port notes of refused clients; who is refused is tested with real certificates (component)."""

import asyncio
import logging
from collections import Counter

import pytest

from proxy.admin import Admission, Request
from proxy.admin.admission import LOG_SECONDS, PROBES
from proxy.admin.http import RefusedError
from proxy.system.logs import FIELDS


async def test_each_refusal_is_counted_and_a_line_in_ten_seconds_has_their_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = [1000.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: seconds[0])
    counted: Counter[str] = Counter()
    admission = Admission(refused=counted)
    for _ in range(5):
        admission.note("wrong_token", "10.0.0.1", "a sentence")
    seconds[0] += LOG_SECONDS / 2
    admission.note("tls", "10.0.0.2", "another")
    admission.note("wrong_token", "10.0.0.1", "a sentence")
    seconds[0] += LOG_SECONDS / 2
    admission.note("wrong_token", "10.0.0.3", "a sentence")
    assert counted == {"wrong_token": 7, "tls": 1}
    said = [getattr(record, FIELDS) for record in caplog.records if record.levelno == logging.WARNING]
    assert [(one["reason"], one["peer"], one["refused"]) for one in said] == [
        ("wrong_token", "10.0.0.1", 1),
        ("tls", "10.0.0.2", 1),
        ("wrong_token", "10.0.0.3", 7 - 1),
    ]


@pytest.mark.parametrize("path", PROBES)
async def test_probe_needs_no_certificate(path: str) -> None:
    admission = Admission(client_auth="required")
    await admission.check(Request("GET", path, "", False), certificate=False)
    with pytest.raises(RefusedError) as caught:
        await admission.check(Request("GET", f"{path}x", "", False), certificate=False)
    assert (caught.value.status, caught.value.reason) == (403, "no_certificate")
