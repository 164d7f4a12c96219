"""`sluice explain` against served admin ports of several members."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from proxy import cli
from tests.cluster import free_ports
from tests.support.scripted_member import HOST, ScriptedMember, row, rule, times

WAITS = row("web-1", "alice", connections=12, time=times(held=0.62), rule=rule())
LITTLE = row("web-1", "alice", connections=4, time=times(held=0.03))
BOB = row("web-1", "bob", time=times(held=0.3))


@pytest.fixture
def members() -> Iterator[tuple[ScriptedMember, ScriptedMember]]:
    with ScriptedMember("gw-1") as first, ScriptedMember("gw-2") as second:
        yield first, second


def explain(*admins: str, more: tuple[str, ...] = ("--user", "alice")) -> int:
    named = [text for admin in admins for text in ("--admin", admin)]
    return cli.main(["explain", "--client-id", "web-1", *more, *named])


def test_verdict_is_of_all_members(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    first.set_clients(WAITS)
    second.set_clients(LITTLE)
    assert explain(second.admin, first.admin, more=("--user", "alice", "--format", "json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentence"] == (
        "web-1 waited 62% of the last minute. It has connections at 2 members: "
        f"12 at {first.admin} (62% waited), 4 at {second.admin} (3%)."
    )
    assert found["connections_total"] == 16
    assert [one["admin"] for one in found["members"]] == [second.admin, first.admin]
    assert found["members_missing"] == []
    assert {one["member"] for one in found["connections"]} == {first.admin, second.admin}


def test_member_that_hangs_or_is_gone_is_said_and_the_others_are_shown(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    first.set_clients(WAITS)
    second.freeze()
    gone = f"{HOST}:{free_ports(1)[0]}"
    code = explain(second.admin, gone, first.admin, more=("--user", "alice", "--format", "json"))
    second.thaw()
    assert code == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert sorted(found["members_missing"]) == sorted([second.admin, gone])
    assert [one["admin"] for one in found["members"]] == [first.admin]
    assert found["sentence"] == "web-1 waited 62% of the last minute."
    said = captured.err.splitlines()
    assert len(said) == 2
    assert any(f"{second.admin}/v1/client" in line and "no response within 5 s" in line for line in said)


def test_address_is_passed_on(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = members
    first.set_clients(WAITS)
    assert explain(first.admin, more=("--user", "alice", "--address", "10.0.0.4")) == 0
    assert capsys.readouterr().out.startswith("web-1 waited 62%")
    assert "address=10.0.0.4" in first.queries["/v1/client"].split("&")


def test_client_of_one_member_alone_is_shown_by_it(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    first.set_clients(WAITS)
    assert explain(first.admin, second.admin) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("web-1 waited 62% of the last minute.\n")
    assert captured.err == ""


def test_client_that_no_member_knows_is_code_3(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    assert explain(first.admin, second.admin) == 3
    assert capsys.readouterr().err == "sluice: not seen\n"


def test_client_that_a_silent_member_may_know_is_code_1(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    gone = f"{HOST}:{free_ports(1)[0]}"
    assert explain(members[0].admin, gone, more=("--user", "alice", "--format", "json")) == 1
    captured = capsys.readouterr()
    expected = {"error": "not seen", "guesses": [], "members": [], "members_missing": [gone]}
    assert json.loads(captured.out) == expected
    assert captured.err == (
        f"sluice: nothing listens at http://{gone}: is sluice serve running there, "
        "and is admin.bind another address?\n"
    )


LATE = [{"worker": 2, "problem": "silent for 4 s"}]


def test_workers_that_a_member_lacks_are_said(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    first.set_clients(WAITS)
    first.details["alice", "web-1"]["missing"] = LATE
    assert explain(first.admin, second.admin) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("web-1 waited 62% of the last minute.\n")
    said = f"sluice: {first.admin} lacks worker 2 (silent for 4 s): clients connected there are not shown\n"
    assert captured.err == said


def test_client_that_a_missing_worker_may_have_is_code_1_with_the_reason(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    first.unavailable["/v1/client"] = {"error": "not seen, which is not certain", "missing": LATE}
    assert explain(first.admin, second.admin) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].endswith(": not seen, which is not certain: worker 2 (silent for 4 s)")
    assert said[1] == "sluice: not seen"


def test_members_of_which_none_responds_are_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    ports = free_ports(2)
    assert explain(*(f"{HOST}:{port}" for port in ports)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 2


def test_documents_of_different_users_are_not_mixed(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --user each member says who waits longest at it: one user of them all is explained."""
    first, second = members
    first.set_clients(WAITS)
    first.details["", "web-1"] = first.details["alice", "web-1"]
    second.set_clients(BOB, LITTLE)
    second.details["", "web-1"] = second.details["bob", "web-1"]
    assert explain(first.admin, second.admin, more=("--format", "json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["user"] == "alice"
    assert found["connections_total"] == 12 + 4


@pytest.mark.parametrize(
    "body", [b"\xff", b"[]", b"{}", b'{"sentence": 1}', b"[" * 100_000, b" " * 3_000_000]
)
def test_member_that_is_not_sluice_is_missing(
    members: tuple[ScriptedMember, ScriptedMember], body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    first.set_clients(WAITS)
    second.bodies["/v1/client"] = body
    assert explain(first.admin, second.admin) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("web-1 waited 62% of the last minute.\n")
    assert captured.err.count("\n") == 1
    assert second.admin in captured.err


def test_port_that_is_silent_after_connecting_is_missing(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    members[0].set_clients(WAITS)
    with socket.create_server((HOST, 0)) as silent:
        admin = f"{HOST}:{silent.getsockname()[1]}"
        assert explain(members[0].admin, admin) == 0
    assert "no response within 5 s" in capsys.readouterr().err


def test_too_many_members_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(*(f"{HOST}:{port}" for port in range(1, 66))) == 2
    assert "--admin: there may be at most 64" in capsys.readouterr().err


def test_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("ftp://gw-1") == 2
    assert "must be HOST:PORT" in capsys.readouterr().err


QUOTA = {
    "kind": "produce",
    "key": "producer_byte_rate",
    "entity": "user 'alice'",
    "value": 2_000_000,
    "part": 0.5,
    "shared_by": "user",
}


def of_user(*admins: str, more: tuple[str, ...] = ()) -> int:
    named = [text for admin in admins for text in ("--admin", admin)]
    return cli.main(["explain", "--user", "alice", *more, *named])


def test_user_is_explained_by_all_of_its_clients(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates of both clients at both members are added: 0.9 + 0.5 + 0.4 MB/s."""
    limit = rule(entity="user 'alice'")
    first, second = members
    first.set_clients(
        row(
            "web-1",
            "alice",
            connections=2,
            time=times(held=0.62),
            rule=limit,
            quotas=[{**QUOTA, "rate": 9e5}],
        ),
        row("batch", "alice", time=times(broker=0.1), quotas=[{**QUOTA, "rate": 5e5}]),
        row("other", "bob", time=times(held=0.9), quotas=[{**QUOTA, "rate": 8e5}]),
    )
    second.set_clients(
        row("web-1", "alice", time=times(held=0.1), rule=limit, quotas=[{**QUOTA, "rate": 4e5}])
    )
    assert of_user(first.admin, second.admin, more=("--format", "json")) == 0
    found = json.loads(capsys.readouterr().out)
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
    assert of_user(first.admin, second.admin) == 0
    assert "explain --client-id web-1 --user alice" in capsys.readouterr().out


def test_user_without_a_wait(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    members[0].set_clients(row("web\x1b", "alice", time=times(broker=0.1)))
    assert of_user(members[0].admin) == 0
    found = capsys.readouterr().out
    assert found.startswith("User alice has 1 client; none waited for a quota in the last minute.\n")
    assert "\x1b" not in found


def test_unknown_client_is_to_be_asked_for_at_the_other_members(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = members
    named = [{"name": one.name, "admin": one.admin} for one in members]
    first.documents["/v1/fleet"] = {"member": True, "name": first.name, "holder": "", "members": named}
    asked = first.admin.removeprefix("http://")
    assert cli.main(["explain", "--client-id", "nothing like it", "--admin", asked]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(f"may have seen it: --admin {asked} --admin {second.admin}")
    assert (
        cli.main(["explain", "--client-id", "nothing like it", "--admin", asked, "--admin", second.admin])
        == 3
    )
    assert "may have seen it" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "guess"),
    [
        (("--client-id", "web1", "--user", "alice"), "--client-id web-1 --user alice"),
        (("--client-id", "WEB-1"), "--client-id web-1 --user alice"),
        (("--client-id", "web-1", "--user", "bob"), "--client-id web-1 --user alice"),
        (("--client-id", "alice"), "--user alice"),
        (("--user", "alic"), "--user alice"),
        (("--client-id", "nothing like it"), ""),
    ],
)
def test_unknown_client_gets_the_nearest_name(
    asked: tuple[str, ...],
    guess: str,
    members: tuple[ScriptedMember, ScriptedMember],
    capsys: pytest.CaptureFixture[str],
) -> None:
    members[0].set_clients(LITTLE)
    assert cli.main(["explain", *asked, "--admin", members[0].admin]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"; did you mean {guess}?" if guess else "not seen")


def test_guesses_are_bounded_whatever_the_names_are(
    members: tuple[ScriptedMember, ScriptedMember], capsys: pytest.CaptureFixture[str]
) -> None:
    """10,000 client ids, a few of them as long as Kafka allows."""
    long = [row("a" * 32_000 + str(number), "eve") for number in range(5)]
    members[0].set_clients(*long, *(row(f"web-{number}", "eve") for number in range(9_000)))
    began = time.monotonic()
    code = cli.main(["explain", "--client-id", "web-x", "--admin", members[0].admin, "--format", "json"])
    assert code == 3
    assert len(json.loads(capsys.readouterr().out)["guesses"]) == 3
    assert time.monotonic() - began < 20


def test_neither_user_nor_client_id_is_a_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 2
    assert "--client-id or --user" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("fleet",), ("enforcement", "status"), ("top", "--once")])
def test_closed_admin_port_is_a_sentence(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    admin = f"{HOST}:{free_ports(1)[0]}"
    cli.main([*words, "--admin", admin])
    captured = capsys.readouterr()
    assert f"nothing listens at http://{admin}: is sluice serve running there" in captured.out + captured.err
    assert "Errno" not in captured.out + captured.err
