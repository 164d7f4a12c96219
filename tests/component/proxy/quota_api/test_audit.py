"""The audit log: who changed which quota from what to what, and from where."""

import logging
from pathlib import Path

import pytest

from proxy.channel import Question
from proxy.config import QuotaSettings
from proxy.control.quotas import FileStore
from proxy.control.quotas.responses import LINES_MAX, audit
from proxy.system.logs import AUDIT, FIELDS
from quotas.definitions.alterations import Alteration

WHO = {"principal": "ops", "address": "10.0.0.4:51000"}
REPORTS = (("client-id", "reports"),)


def lines(
    caplog: pytest.LogCaptureFixture, directory: Path, *alterations: Alteration
) -> list[tuple[str, dict[str, object]]]:
    """Alter the quotas of a file, and give what the audit log says: message, fields."""
    path = directory / "quotas.toml"
    path.write_text('[[quota]]\nclient_id = "reports"\nproducer_byte_rate = "2M"\nrequest_percentage = 5\n')
    store = FileStore(QuotaSettings(file=path))
    outcome = store.alter(alterations, validate_only=False)
    with caplog.at_level(logging.INFO, AUDIT):
        audit(
            Question(49, 1, 1, b"", 0, "ops", False, peer="10.0.0.4:51000"),
            outcome,
            len(store.definitions),
        )
    return [(record.message, vars(record)[FIELDS]) for record in caplog.records if record.name == AUDIT]


def test_changed_quota_has_entity_old_new_principal_and_address(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    changed, in_all = lines(
        caplog, tmp_path, (REPORTS, [("producer_byte_rate", 4e6), ("consumer_byte_rate", 9)])
    )
    change = "producer_byte_rate: 2000000 -> 4000000, consumer_byte_rate: none -> 9"
    assert changed == ("quota altered", {"entity": "client-id 'reports'", "change": change, **WHO})
    assert in_all == ("quotas altered", {"entities": 1, "quota_entries": 1, **WHO})


def test_removed_and_new_entities_have_none_at_one_end(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    found = lines(
        caplog,
        tmp_path,
        (REPORTS, [("producer_byte_rate", None), ("request_percentage", None)]),
        ((("user", None),), [("consumer_byte_rate", 7.0)]),
    )
    assert [fields["change"] for _, fields in found[:2]] == [
        "producer_byte_rate: 2000000 -> none, request_percentage: 5.0 -> none",
        "consumer_byte_rate: none -> 7",
    ]
    assert [fields["entity"] for _, fields in found[:2]] == ["client-id 'reports'", "user <default>"]


def test_refused_alterations_are_not_audited(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (in_all,) = lines(caplog, tmp_path, (REPORTS, [("producer_byte_rate", -1.0)]))
    assert in_all[1]["entities"] == 0


def test_lines_of_one_request_are_bounded_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    many: list[Alteration] = [
        ((("user", f"u{n}"),), [("producer_byte_rate", 5.0)]) for n in range(LINES_MAX + 3)
    ]
    *listed, rest, in_all = lines(caplog, tmp_path, *many)
    assert len(listed) == LINES_MAX
    assert rest == ("quotas altered, not listed", {"entities": 3, **WHO})
    assert in_all[1]["entities"] == LINES_MAX + 3
