"""`sluice fleet` and what `sluice check` says of a fleet, from values."""

import argparse
import json
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy import cli
from proxy.commands import check_text, fleet
from proxy.config import Address, ClusterOptions, FleetOptions
from proxy.fleet.facts import differences, state_of
from proxy.fleet.messages import MemberView, View
from proxy.system.errors import ConfigError, ServerError
from proxy.system.files import read_secret
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee

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


def test_member_that_is_cut_off_says_what_it_uses() -> None:
    lines = list(fleet.table({**document(leased(), None, 15_000), "problem": "Connection refused"}))
    assert lines[:2] == ["gw-1: is cut off, and uses 25.00% of each quota", "  Connection refused"]


def test_member_that_has_just_begun_says_so() -> None:
    lessee = Lessee(TERMS, LesseeId("gw-1", 1), 0)
    assert (
        next(fleet.table(document(lessee, None, 5))) == "gw-1: has just begun, and uses 0.06% of each quota"
    )


@pytest.mark.parametrize(
    ("view", "code"), [(VIEW, 3), (replace(VIEW, members=VIEW.members[:1], shares=()), 0)]
)
def test_exit_code_says_whether_members_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], view: View, code: int
) -> None:
    found = document(leased(), view, 1000)
    monkeypatch.setattr(fleet, "read_document", lambda *_: found)
    assert fleet.run(argparse.Namespace(admin="a:1", format="json")) == code
    assert json.loads(capsys.readouterr().out) == found


def test_process_that_is_no_member_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "read_document", lambda *_: {"member": False})
    with pytest.raises(ServerError, match="is no member of a fleet"):
        fleet.run(argparse.Namespace(admin="a:1", format="table"))


def test_check_says_who_holds() -> None:
    address = Address("gw-1", 19070)
    options = FleetOptions(name="gw-1", holder=address, bind=Address("0.0.0.0", 19070))
    assert list(check_text.lines(options)) == [
        "fleet: 'gw-1', one of at most 8 members; the holder is this process",
        "  members reach it at gw-1:19070: 0.0.0.0:19070, not signed",
    ]
    other = FleetOptions(name="gw-2", holder=address)
    assert list(check_text.lines(other)) == [
        "fleet: 'gw-2', one of at most 8 members; the holder is gw-1:19070"
    ]
    member = FleetOptions(name="gw-2", bind=Address("127.0.0.1", 19070))
    assert next(check_text.lines(member)) == (
        "fleet: 'gw-2', one of at most 8 members; the holder is chosen by the group __sluice"
    )
    bootstrap = (Address("ops1", 9092), Address("ops2", 9092))
    elsewhere = replace(member, bootstrap=bootstrap, cluster=ClusterOptions(bootstrap))
    assert "  its own cluster, for the group and Sluice's topics: ops1:9092, ops2:9092" in list(
        check_text.lines(elsewhere)
    )
    assert check_text.document(FleetOptions()) is None
    assert check_text.document(other) == {
        "name": "gw-2",
        "members_max": 8,
        "holder": "gw-1:19070",
        "group": None,
        "bootstrap": [],
        "holds": False,
        "cut_off": "share",
    }


def test_secret_is_random_printed_or_written_and_replaces_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [cli.main(["fleet", "secret"]) for _ in range(2)] == [0, 0]
    printed = capsys.readouterr().out.split()
    assert len(set(printed)) == 2
    assert all(len(bytes.fromhex(one)) == 32 for one in printed)
    path = tmp_path / "fleet.secret"
    assert cli.main(["fleet", "secret", str(path)]) == 0
    written = read_secret(path, "key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert capsys.readouterr().out == "", "it is in the file alone"
    assert cli.main(["fleet", "secret", str(path)]) == 1
    assert "File exists" in capsys.readouterr().err
    assert read_secret(path, "key") == written


def test_secret_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "fleet.secret"
    options = FleetOptions(holder=Address("h", 1), secret_file=path)
    check_text.check_secret(options, may_be_missing=True)
    with pytest.raises(ConfigError, match=r"^fleet\.secret_file: .*fleet\.secret: No such file"):
        check_text.check_secret(options, may_be_missing=False)
    path.write_text("secret")
    with pytest.raises(
        ConfigError, match=r"^fleet\.secret_file: the secret in .* has 6 bytes.*sluice fleet secret"
    ):
        check_text.check_secret(options, may_be_missing=True)
    path.write_text("s" * 32)
    check_text.check_secret(options, may_be_missing=False)
    check_text.check_secret(FleetOptions(), may_be_missing=False)
