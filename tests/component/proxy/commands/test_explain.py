"""`sluice explain` against served admin ports of several members."""

import json
import shlex
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import free_ports
from tests.support.command_line import Sluice
from tests.support.scripted_member import HOST, ScriptedMember, row, rule, times

WAITS = row("web-1", "alice", connections=12, time=times(held=0.62), rule=rule())
LITTLE = row("web-1", "alice", connections=4, time=times(held=0.03))
BOB = row("web-1", "bob", time=times(held=0.3))


Members = tuple[ScriptedMember, ScriptedMember]


@pytest.fixture
def members() -> Iterator[Members]:
    with ScriptedMember("gw-1") as first, ScriptedMember("gw-2") as second:
        yield first, second


class Explain:
    """`sluice explain`, of web-1 of alice if nothing else is said, at these members."""

    def __init__(self, sluice: Sluice) -> None:
        self._sluice = sluice

    @property
    def err(self) -> str:
        return self._sluice.err

    def __call__(self, *admins: str, more: str = "--client-id web-1 --user alice", code: int = 0) -> str:
        named = [text for admin in admins for text in ("--admin", admin)]
        return self._sluice("explain", *shlex.split(more), *named, code=code)

    def document(self, *admins: str, more: str = "--client-id web-1 --user alice", code: int = 0) -> Any:
        return json.loads(self(*admins, more=f"{more} --format json", code=code))


@pytest.fixture
def explain(sluice: Sluice) -> Explain:
    return Explain(sluice)


def test_verdict_is_of_all_members(members: Members, explain: Explain) -> None:
    first, second = members
    first.set_clients(WAITS)
    second.set_clients(LITTLE)
    found = explain.document(second.admin, first.admin)
    assert found["sentence"] == (
        "web-1 waited 62% of the last minute. It has connections at 2 members: "
        f"12 at {first.admin} (62% waited), 4 at {second.admin} (3%)."
    )
    assert found["connections_total"] == 16
    assert [one["admin"] for one in found["members"]] == [second.admin, first.admin]
    assert found["members_missing"] == []
    assert {one["member"] for one in found["connections"]} == {first.admin, second.admin}


def test_member_that_hangs_or_is_gone_is_said_and_the_others_are_shown(
    members: Members, explain: Explain
) -> None:
    first, second = members
    first.set_clients(WAITS)
    second.freeze()
    gone = f"{HOST}:{free_ports(1)[0]}"
    with socket.create_server((HOST, 0)) as unserved:  # the system accepts, and nothing reads
        silent = f"{HOST}:{unserved.getsockname()[1]}"
        found = explain.document(second.admin, gone, silent, first.admin)
    second.thaw()
    assert sorted(found["members_missing"]) == sorted([second.admin, gone, silent])
    assert [one["admin"] for one in found["members"]] == [first.admin]
    assert found["sentence"] == "web-1 waited 62% of the last minute."
    said = explain.err.splitlines()
    assert len(said) == 3
    for late in (second.admin, silent):
        assert any(f"{late}/v1/client" in line and "no response within 5 s" in line for line in said)


def test_address_is_passed_on(members: Members, explain: Explain) -> None:
    first, _ = members
    first.set_clients(WAITS)
    said = explain(first.admin, more="--client-id web-1 --user alice --address 10.0.0.4")
    assert said.startswith("web-1 waited 62%")
    assert "address=10.0.0.4" in first.queries["/v1/client"].split("&")


def test_client_of_one_member_alone_is_shown_by_it(members: Members, explain: Explain) -> None:
    first, second = members
    first.set_clients(WAITS)
    assert explain(first.admin, second.admin).startswith("web-1 waited 62% of the last minute.\n")
    assert explain.err == ""


def test_client_that_no_member_knows_is_code_3(members: Members, explain: Explain) -> None:
    first, second = members
    explain(first.admin, second.admin, code=3)
    assert explain.err == "sluice: not seen\n"


def test_client_that_a_silent_member_may_know_is_code_1(members: Members, explain: Explain) -> None:
    gone = f"{HOST}:{free_ports(1)[0]}"
    expected = {"error": "not seen", "guesses": [], "members": [], "members_missing": [gone]}
    assert explain.document(members[0].admin, gone, code=1) == expected
    assert explain.err == (
        f"sluice: nothing listens at http://{gone}: is sluice serve running there, "
        "and is admin.bind another address?\n"
    )


LATE = [{"worker": 2, "problem": "silent for 4 s"}]


def test_workers_that_a_member_lacks_are_said(members: Members, explain: Explain) -> None:
    first, second = members
    first.set_clients(WAITS)
    first.details["alice", "web-1"]["missing"] = LATE
    assert explain(first.admin, second.admin).startswith("web-1 waited 62% of the last minute.\n")
    said = f"sluice: {first.admin} lacks worker 2 (silent for 4 s): clients connected there are not shown\n"
    assert explain.err == said


def test_client_that_a_missing_worker_may_have_is_code_1_with_the_reason(
    members: Members, explain: Explain
) -> None:
    first, second = members
    first.unavailable["/v1/client"] = {"error": "not seen, which is not certain", "missing": LATE}
    explain(first.admin, second.admin, code=1)
    said = explain.err.splitlines()
    assert len(said) == 2
    assert said[0].endswith(": not seen, which is not certain: worker 2 (silent for 4 s)")
    assert said[1] == "sluice: not seen"


def test_members_of_which_none_responds_are_code_1(explain: Explain) -> None:
    assert explain(*(f"{HOST}:{port}" for port in free_ports(2)), code=1) == ""
    assert explain.err.count("\n") == 2


def test_documents_of_different_users_are_not_mixed(members: Members, explain: Explain) -> None:
    """Without --user each member says who waits longest at it: one user of them all is explained."""
    first, second = members
    first.set_clients(WAITS)
    first.details["", "web-1"] = first.details["alice", "web-1"]
    second.set_clients(BOB, LITTLE)
    second.details["", "web-1"] = second.details["bob", "web-1"]
    found = explain.document(first.admin, second.admin, more="--client-id web-1")
    assert found["user"] == "alice"
    assert found["connections_total"] == 12 + 4


@pytest.mark.parametrize(
    "body", [b"\xff", b"[]", b"{}", b'{"sentence": 1}', b"[" * 100_000, b" " * 3_000_000]
)
def test_member_that_is_not_sluice_is_missing(members: Members, explain: Explain, body: bytes) -> None:
    first, second = members
    first.set_clients(WAITS)
    second.bodies["/v1/client"] = body
    assert explain(first.admin, second.admin).startswith("web-1 waited 62% of the last minute.\n")
    assert explain.err.count("\n") == 1
    assert second.admin in explain.err


@pytest.mark.parametrize(
    ("admins", "more", "problem"),
    [
        ([f"{HOST}:{port}" for port in range(1, 66)], "--user alice", "--admin: there may be at most 64"),
        (["ftp://gw-1"], "--client-id web-1", "must be HOST:PORT"),
        ([], "", "--client-id or --user"),
    ],
    ids=["65 members", "no address", "no client"],
)
def test_wrong_usage(explain: Explain, admins: list[str], more: str, problem: str) -> None:
    explain(*admins, more=more, code=2)
    assert problem in explain.err


QUOTA = {
    "kind": "produce",
    "key": "producer_byte_rate",
    "entity": "user 'alice'",
    "value": 2_000_000,
    "part": 0.5,
    "shared_by": "user",
}


def test_user_is_explained_by_all_of_its_clients(members: Members, explain: Explain) -> None:
    """Rates of both clients at both members are added: 0.9 + 0.5 + 0.4 MB/s."""
    limit = rule(entity="user 'alice'")
    first, second = members

    def used(rate: float) -> list[dict[str, object]]:
        return [{**QUOTA, "rate": rate}]

    first.set_clients(
        row("web-1", "alice", connections=2, time=times(held=0.62), rule=limit, quotas=used(9e5)),
        row("batch", "alice", time=times(broker=0.1), quotas=used(5e5)),
        row("other", "bob", time=times(held=0.9), quotas=used(8e5)),
    )
    second.set_clients(row("web-1", "alice", time=times(held=0.1), rule=limit, quotas=used(4e5)))
    found = explain.document(first.admin, second.admin, more="--user alice")
    assert found["sentence"] == (
        "1 of 2 clients of user alice waited; web-1 most, 62% of the last minute, for producer_byte_rate 2.0 MB/s of "
        "user 'alice'. Together they take 1.8 MB/s of 2.0 MB/s (produce quota of user 'alice')."
    )
    assert [(one["client_id"], one["connections"], one["waited"]) for one in found["clients"]] == [
        ("web-1", 3, 0.62),
        ("batch", 1, 0),
    ]
    assert found["quotas"] == [{"kind": "produce", "entity": "user 'alice'", "value": 2e6, "rate": 1.8e6}]
    assert (found["clients_total"], found["connections_total"], found["waiting"]) == (2, 4, 1)
    assert (found["members"], found["members_missing"]) == ([first.admin, second.admin], [])
    shown = explain(first.admin, second.admin, more="--user alice")
    assert "explain --client-id web-1 --user alice" in shown


def test_user_without_a_wait(members: Members, explain: Explain) -> None:
    members[0].set_clients(row("web\x1b", "alice", time=times(broker=0.1)))
    found = explain(members[0].admin, more="--user alice")
    assert found.startswith("User alice has 1 client; none waited for a quota in the last minute.\n")
    assert "\x1b" not in found


def test_unknown_client_is_to_be_asked_for_at_the_other_members(members: Members, explain: Explain) -> None:
    first, second = members
    named = [{"name": one.name, "admin": one.admin} for one in members]
    first.documents["/v1/fleet"] = {"member": True, "name": first.name, "holder": "", "members": named}
    asked = first.admin.removeprefix("http://")
    unknown = "--client-id 'nothing like it'"
    explain(asked, more=unknown, code=3)
    line = explain.err.splitlines()[-1]
    assert line.endswith(f"may have seen it: --admin {asked} --admin {second.admin}")
    explain(asked, second.admin, more=unknown, code=3)
    assert "may have seen it" not in explain.err


@pytest.mark.parametrize(
    ("asked", "guess"),
    [
        ("--client-id web1 --user alice", "--client-id web-1 --user alice"),
        ("--client-id WEB-1", "--client-id web-1 --user alice"),
        ("--client-id web-1 --user bob", "--client-id web-1 --user alice"),
        ("--client-id alice", "--user alice"),
        ("--user alic", "--user alice"),
        ("--client-id 'nothing like it'", ""),
    ],
)
def test_unknown_client_gets_the_nearest_name(
    asked: str, guess: str, members: Members, explain: Explain
) -> None:
    members[0].set_clients(LITTLE)
    explain(members[0].admin, more=asked, code=3)
    (line,) = explain.err.splitlines()
    assert line.endswith(f"; did you mean {guess}?" if guess else "not seen")


def test_guesses_are_bounded_whatever_the_names_are(members: Members, explain: Explain) -> None:
    """10,000 client ids, a few of them as long as Kafka allows."""
    long = [row("a" * 32_000 + str(number), "eve") for number in range(5)]
    members[0].set_clients(*long, *(row(f"web-{number}", "eve") for number in range(9_000)))
    began = time.monotonic()
    assert len(explain.document(members[0].admin, more="--client-id web-x", code=3)["guesses"]) == 3
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("words", ["fleet", "enforcement status", "top --once"])
def test_closed_admin_port_is_a_sentence(words: str, sluice: Sluice) -> None:
    admin = f"{HOST}:{free_ports(1)[0]}"
    said = sluice(*words.split(), "--admin", admin, code=1) + sluice.err
    assert f"nothing listens at http://{admin}: is sluice serve running there" in said
    assert "Errno" not in said
