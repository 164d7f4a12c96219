"""`sluice fleet`, from values."""

import json
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.commands import fleet
from proxy.fleet.facts import differences, state_of
from proxy.fleet.messages import MemberView, View
from proxy.system.files import read_secret
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee
from tests.support.command_line import Sluice

TERMS = LeaseTerms(15_000, 1000, 4)
KEY = "producer_byte_rate@-1 -=:reports"
VIEW = View(
    False,
    (
        MemberView(LesseeId("gw-1", 1), 100, 70, {"version": "1.0", "quotas": "3", "quotas_digest": "aa"}),
        MemberView(LesseeId("gw-2", 2), 900, 60, {"version": "1.0", "quotas": "4", "quotas_digest": "bb"}),
    ),
    ((KEY, (0.75, 0.245)),),
)


def leased() -> Lessee:
    lessee = Lessee(TERMS, LesseeId("gw-1", 1), 0)
    report = lessee.report(0)
    assert lessee.take(Grants(9, 1, 1, report.number, 15_000, {DEFAULT_KEY: 0.24, KEY: 0.75}, True, 4), 0)
    return lessee


def differing(view: View | None) -> list[str]:
    members = () if view is None else view.members
    return list(differences((member.lessee.name, member.facts) for member in members).values())


def document(lessee: Lessee, view: View | None, now_ms: int) -> dict[str, object]:
    """What the admin port shows, after a turn through JSON."""
    found = {
        "member": True,
        "holder": "gw-1:19070",
        "holds": True,
        "problem": "",
        **state_of(lessee, view, differing(view), now_ms),
    }
    result: dict[str, object] = json.loads(json.dumps(found))
    return result


def test_table_shows_members_shares_and_what_differs() -> None:
    assert list(fleet.table(document(leased(), VIEW, 1000))) == [
        "gw-1: has a lease for 14.0 s, and leases shares to all members",
        "holder: gw-1:19070",
        "",
        "member  version  present  last report  quotas",
        "gw-1    1.0      70 s     0.1 s ago    3",
        "gw-2    1.0      60 s     0.9 s ago    4",
        "",
        "quota                             gw-1    gw-2",
        "producer_byte_rate@-1 -=:reports  75.00%  24.50%",
        "",
        "differs: the quotas differ: 3 with digest aa at gw-1; 4 with digest bb at gw-2",
    ]


def test_member_without_a_lease_says_what_it_uses() -> None:
    lines = list(fleet.table({**document(leased(), None, 15_000), "problem": "Connection refused"}))
    assert lines[:2] == ["gw-1: is cut off, and uses 25.00% of each quota", "  Connection refused"]
    begun = next(fleet.table(document(Lessee(TERMS, LesseeId("gw-1", 1), 0), None, 5)))
    assert begun == "gw-1: has just begun, and uses 0.06% of each quota"


@pytest.mark.parametrize(
    ("view", "code"), [(VIEW, 3), (replace(VIEW, members=VIEW.members[:1], shares=()), 0)]
)
def test_exit_code_says_whether_members_differ(
    monkeypatch: pytest.MonkeyPatch, sluice: Sluice, view: View, code: int
) -> None:
    found = document(leased(), view, 1000)
    monkeypatch.setattr(fleet, "read_document", lambda *_: found)
    assert json.loads(sluice("fleet", "--admin", "a:1", "--format", "json", code=code)) == found


def test_process_that_is_no_member_is_an_error(monkeypatch: pytest.MonkeyPatch, sluice: Sluice) -> None:
    monkeypatch.setattr(fleet, "read_document", lambda *_: {"member": False})
    sluice("fleet", "--admin", "a:1", code=1)
    assert "a:1: is no member of a fleet" in sluice.err


def test_secret_is_random_printed_or_written_and_replaces_no_file(tmp_path: Path, sluice: Sluice) -> None:
    printed = [sluice("fleet", "secret").strip() for _ in range(2)]
    assert len(set(printed)) == 2
    assert all(len(bytes.fromhex(one)) == 32 for one in printed)
    path = tmp_path / "fleet.secret"
    assert sluice("fleet", "secret", path) == "", "it is in the file alone"
    written = read_secret(path, "key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    sluice("fleet", "secret", path, code=1)
    assert "File exists" in sluice.err
    assert read_secret(path, "key") == written
