"""`/v1/fleet`: what is told of members."""

from typing import Any

import pytest

from proxy.admin import pages
from proxy.admin.pages import fleet_document
from proxy.config import Address, AdminOptions, FleetOptions, PortTls
from proxy.fleet.facts import addresses_of
from tests.support.documents import as_json


def state(**fields: Any) -> dict[str, Any]:
    member = {"name": "gw-1", "run": "a1", "silent_seconds": 0.5, "admin": "http://gw-1:19080"}
    return {
        "name": "gw-1",
        "run": "a1",
        "holder": None,
        "problem": "",
        "default_share": 0.5,
        "disagreements": [],
        "members": [member, {"name": "gw-2", "run": "b2", "silent_seconds": 9.0}],
        "member_shares": {"key": [0.75, 0.25]},
        **fields,
    }


def test_members_with_their_admin_ports() -> None:
    found = as_json(fleet_document(state()))
    assert (found["member"], found["name"], found["holder"]) == (True, "gw-1", "")
    first, second = found["members"]
    assert (first["admin"], first["share"], first["reachable"]) == ("http://gw-1:19080", 0.5, True)
    assert (second["admin"], second["share"], second["reachable"]) == ("", None, False)
    assert (first["shares"], second["shares"]) == ({"key": 0.75}, {"key": 0.25})


def test_process_without_a_fleet() -> None:
    texts, lists = ("name", "holder", "problem"), ("members", "disagreements", "missing")
    empty: dict[str, Any] = {"member": False} | dict.fromkeys(texts, "") | {name: [] for name in lists}
    assert as_json(fleet_document(None)) == empty


@pytest.mark.parametrize(
    ("bind", "admin", "expected"),
    [
        ("10.0.0.1", "0.0.0.0", "http://10.0.0.1:19080"),
        ("0.0.0.0", "0.0.0.0", "http://gw-1:19080"),
        ("10.0.0.1", "10.1.0.1", "http://10.1.0.1:19080"),
        ("10.0.0.1", "127.0.0.1", None),  # of no use to the others
        ("127.0.0.1", "127.0.0.1", "http://127.0.0.1:19080"),
    ],
)
def test_admin_port_as_others_reach_it(bind: str, admin: str, expected: str | None) -> None:
    options = FleetOptions(name="gw-1", bind=Address(bind, 19095))
    assert addresses_of(options, AdminOptions(bind=Address(admin, 19080))).get("admin") == expected


def test_admin_port_with_tls_is_told_as_https() -> None:
    options = FleetOptions(name="gw-1", bind=Address("10.0.0.1", 19095))
    admin = AdminOptions(bind=Address("0.0.0.0", 19080), tls=PortTls())
    assert addresses_of(options, admin)["admin"] == "https://10.0.0.1:19080"


def test_process_without_ports_has_no_addresses() -> None:
    assert addresses_of(FleetOptions(name="gw-1", holder=Address("a", 1)), AdminOptions(bind=None)) == {}


def test_index_links_every_page_and_says_whether_quotas_are_enforced() -> None:
    page = pages.index("1.2.3", True)
    for path in (b"/metrics", b"/clients", b"/healthz", b"/readyz"):
        assert b'href="' + path + b'"' in page.body
    assert b"1.2.3. Quotas are enforced." in page.body
    assert b"not enforced" in pages.index("1", False).body
