"""`sluice check`: what it says of a configuration, and its exit code. The cluster stands in."""

import errno
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from proxy import cli
from proxy.commands import check, check_text
from proxy.commands import check_text as check_fleet
from proxy.commands.check import machine_warnings
from proxy.commands.check_text import Members
from proxy.config import Address, Config
from quotas.definitions.definitions import Definitions
from tests.cluster import free_ports
from tests.support.configurations import parsed

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\nbroker_id_max = 3\n'


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No environment; and the root logger as it was."""
    monkeypatch.setattr("os.environ", {})
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def checked(path: Path, text: str, *more: str) -> int:
    (path / "sluice.toml").write_text(text)
    return cli.main(["check", "--config", str(path / "sluice.toml"), *more])


def cluster_of(monkeypatch: pytest.MonkeyPatch, brokers: Mapping[int, Address], problem: str = "") -> None:
    def ask(_: Config) -> tuple[Mapping[int, Address], str]:
        return brokers, problem

    monkeypatch.setattr(check, "ask_cluster", ask)
    monkeypatch.setattr(
        check, "machine_warnings", lambda _: ()
    )  # what else runs here is not the test's affair


def test_gateway_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.toml").write_text(
        '[[quota]]\nclient_id = "reports"\nconsumer_byte_rate = "64Ki"\n'
        '[[quota]]\nuser = "u"\nproducer_byte_rate = 5000\n'
    )
    text = (
        SMALL
        + '[quotas]\npolicy = "kip13"\nfile = "q.toml"\nproducer_default = "2M"\nproducer_override = "a:4M"\n'
    )
    assert checked(tmp_path, text, "--offline") == 0
    assert capsys.readouterr().out.splitlines() == [
        'listener "clients": gateway on 127.0.0.1, bootstrap port 19090, broker ports 19100 to 19103 (ids 0 to 3)',
        "  clients see 127.0.0.1:19090, and broker N at 127.0.0.1:19100 + N",
        "quotas: policy kip13, mode enforce, scope cluster, 11 windows of 1 s, mutes up to 20 s",
        f'  kept in {tmp_path / "q.toml"}; altered by clients of listener "clients", from this machine alone',
        "  every other client id: producer_byte_rate 2M",
        "  client id 'a': producer_byte_rate 4M",
        "  client id 'reports': consumer_byte_rate 64Ki; as every other client id producer_byte_rate 2M",
        "  user 'u': producer_byte_rate 5k",
        "  every other client id: no consumer limit",
        "admin: http://127.0.0.1:19080/",
        f"{tmp_path / 'sluice.toml'} is right; the cluster was not asked.",
    ]


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        (
            ['user = "<default>"\nproducer_byte_rate = 7', 'user = "u"\nconsumer_byte_rate = 5'],
            "  user 'u': consumer_byte_rate 5; as every other user producer_byte_rate 7",
        ),
        (
            [
                'user = "<default>"\nproducer_byte_rate = 7',
                'user = "<default>"\nclient_id = "c"\nproducer_byte_rate = 6',
                'user = "u"\nconsumer_byte_rate = 5',
            ],
            "  user 'u': consumer_byte_rate 5",
        ),
        (
            [
                'client_id = "<default>"\nproducer_byte_rate = 7',
                'user = "u"\nclient_id = "c"\nconsumer_byte_rate = 5',
            ],
            "  client id 'c' of user 'u': consumer_byte_rate 5",
        ),
        (
            ['topic = "<default>"\nproducer_byte_rate = 7', 'topic = "t"\nconsumer_byte_rate = 5'],
            "  topic 't': consumer_byte_rate 5; as every other topic producer_byte_rate 7",
        ),
    ],
    ids=["user", "user, another default is nearer", "both", "topic"],
)
def test_override_is_listed_with_what_the_default_entity_gives_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: list[str], line: str
) -> None:
    (tmp_path / "q.toml").write_text("".join(f"[[quota]]\n{table}\n" for table in tables))
    assert checked(tmp_path, SMALL + '[quotas]\nfile = "q.toml"\n', "--offline") == 0
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[quotas]\n", "kafka-configs cannot alter them: there is no quotas file"),
        ('[quotas]\nstore = "cluster"\n', "altered at the brokers: these are their own quotas"),
        (
            '[quotas]\nfile = "q.toml"\nalter_principals = ["ops", "ci"]\n',
            "altered by user 'ops', user 'ci' (known only where clients log in, and neither",
        ),
        ('[quotas]\nfile = "q.toml"\nalter_principals = "*"\n', "q.toml; altered by every client\n"),
        (
            '[quotas]\nfile = "q.toml"\n[fleet]\nholder = "gw-1:19070"\n',
            'q.toml, at each member of the fleet; kafka-configs cannot alter them: store = "topic" under [quotas] lets',
        ),
    ],
)
def test_alteration_of_quotas_is_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    (tmp_path / "q.toml").write_text("")
    assert checked(tmp_path, SMALL + text, "--offline") == 0
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cluster", "listener", "who"),
    [
        (
            "",
            "",
            (
                "user 'ops' (known only where clients log in, and neither [cluster] sasl_mechanism nor a listener's "
                'client_auth says that they do), clients of listener "clients", from this machine alone'
            ),
        ),
        ('sasl_mechanism = "PLAIN"\nusername = "u"\npassword = "p"\n', "", "user 'ops'"),
        (
            "",
            'tls = { cert_file = "c", client_ca_file = "ca" }\n',
            "user 'ops', clients of listener \"clients\", from this machine alone",
        ),
    ],
    ids=["no login", "SASL", "client certificates"],
)
def test_user_is_known_only_where_clients_log_in(cluster: str, listener: str, who: str) -> None:
    text = f'[cluster]\nbootstrap = "127.0.0.1:9092"\n{cluster}[[listeners]]\n{listener}'
    quotas = '[quotas]\nfile = "q.toml"\nalter_principals = "ops"\n'
    config = parsed(text + quotas)
    said = [line for line in check_text.quotas(config, Definitions()) if "altered by" in line]
    assert said == [f"  kept in /etc/sluice/q.toml; altered by {who}"]


def test_listener_of_other_machines_lets_no_client_alter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.toml").write_text("")
    text = SMALL + 'bind = "0.0.0.0"\nadvertised_host = "h"\n[quotas]\nfile = "q.toml"\n'
    assert checked(tmp_path, text, "--offline") == 0
    assert 'no user may (alter_principals = ["NAME"] under [quotas])' in capsys.readouterr().out


def test_partition_mutations_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, SMALL + "[quotas]\npartition_mutations_rate = 0.5", "--offline") == 0
    line = "  all clients together: 0.5 partition mutations/s, 5.5 at once\n"  # 11 windows of 1 s
    assert line in capsys.readouterr().out


def test_sidecar_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[[listeners]]\nupstreams = { 1 = "127.0.0.1:29391" }\n[admin]\nbind = ""\n[quotas]\npolicy = "schedule"\n'
    assert checked(tmp_path, text, "--offline") == 0
    out = capsys.readouterr().out
    assert "sidecar on 127.0.0.1, bootstrap port 19090, broker ports 19101" in out
    assert "in front of broker 1 at 127.0.0.1:29391; addresses in responses are not changed" in out
    assert "bursts of 1 s, holds up to 15 s" in out
    assert "admin: none" in out


def test_settings_without_effect_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "q.toml").write_text('[[quota]]\nclient_id = "app-*"\nproducer_byte_rate = "5M"\n')
    text = '[quotas]\npolicy = "schedule"\nfile = "q.toml"\n[replication]\nleader_rate = "5M"\nthrottled = "file"\n'
    assert checked(tmp_path, SMALL + text + '[state]\ndirectory = "file"\n', "--offline") == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert [line.partition(":")[2].partition(": ")[0].strip() for line in said] == [
        "replication",
        "state.directory",
        str(tmp_path / "q.toml"),
    ]
    assert "quota of client id 'app-*': there are no patterns" in said[2]
    assert checked(tmp_path, SMALL + text, "--offline") == 0
    assert capsys.readouterr().out.endswith(
        "sluice.toml is right, with 2 warnings; the cluster was not asked.\n"
    )


def test_long_lists_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = ",".join(f"c{n}:5" for n in range(60))
    assert checked(tmp_path, SMALL + f'[quotas]\nproducer_override = "{rates}"', "--offline") == 0
    out = capsys.readouterr().out
    assert out.count("producer_byte_rate 5") == 50
    assert "  and 10 more\n" in out


def test_check_names_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_of(monkeypatch, {1: Address("h", 1), 3: Address("h", 3)})
    assert checked(tmp_path, SMALL) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "cluster: 2 brokers",
        "  broker 1 at h:1",
        "  broker 3 at h:3",
        f"{tmp_path / 'sluice.toml'} is right.",
    ]


@pytest.mark.parametrize("form", ["table", "json"])
def test_broker_without_a_port_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    cluster_of(monkeypatch, {1: Address("h", 1), 7: Address("h", 7)})
    assert checked(tmp_path, SMALL, "--format", form) == 1
    captured = capsys.readouterr()
    said = 'listener "clients" has no port for broker 7, so clients do not learn of it'
    assert captured.err == f"sluice: {said}: write broker_id_max = 7 (now 3) and restart\n"
    if form == "table":
        assert "  broker 7 at h:7\n" in captured.out
        assert "is right" not in captured.out
    else:
        document = json.loads(captured.out)
        assert document["problem"].startswith(said)
        assert document["cluster"]["without_port"] == [{"listener": "clients", "brokers": [7]}]


def test_unreachable_cluster_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_of(monkeypatch, {}, "cluster unreachable: h:1: Connection refused")
    assert checked(tmp_path, SMALL) == 1
    captured = capsys.readouterr()
    assert captured.err == "sluice: cluster unreachable: h:1: Connection refused\n"
    assert "is right" not in captured.out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SMALL + "[limits]\nx = 1", "sluice: limits.x: unknown key"),
        (SMALL + '[quotas]\nfile = "none.toml"', "sluice: "),
    ],
)
def test_wrong_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    assert checked(tmp_path, text, "--offline") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("", "replication: policy schedule, throttled as the cluster's own configs say"),
        ('throttled = "off"', "replication: not throttled"),
        (
            'throttled = "reassignments"\nleader_rate = "4M"\npolicy = "kip73"',
            "replication: policy kip73, throttled: what reassignments add; leaders 4M bytes/s, followers unlimited",
        ),
    ],
)
def test_replication_is_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str, line: str
) -> None:
    listener = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
    assert checked(tmp_path, SMALL + listener + f"[replication]\n{keys}\n", "--offline") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'listener "clients": replication on 127.0.0.1, no bootstrap port, broker ports 19101'
    assert line in lines


def test_old_leases_are_described_as_the_fleet_they_are_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
    keys = 'peers = ["a", "b"]\nname = "a"\nholder = "127.0.0.1:19070"\nbind = "127.0.0.1:19070"\n'
    assert checked(tmp_path, SMALL + listener + f"[leases]\n{keys}\n", "--offline") == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("fleet: 'a', one of at most 2 members; the holder is this process")
    assert lines[at + 1] == "  members reach it at 127.0.0.1:19070: 127.0.0.1:19070, not signed"
    assert any(line.startswith("warning: leases: is replaced by [fleet]") for line in lines)


def test_reassignments_in_batches_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SMALL + '[reassignment]\nmode = "batch"\njournal = "/shared"\n'
    assert checked(tmp_path, text, "--offline") == 0
    said = (
        "reassignments: 1 replica of a partition, 10 partitions, 2 leaders, 20 replicas in all at once; "
        "journal in /shared"
    )
    assert said in capsys.readouterr().out.splitlines()


def test_findings_about_this_machine_are_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_of(monkeypatch, {1: Address("h", 1)})
    monkeypatch.setattr(check, "machine_warnings", lambda _: iter(["a port is taken"]))
    assert checked(tmp_path, SMALL) == 0
    assert "warning: a port is taken\ncluster: 1 broker\n" in capsys.readouterr().out
    assert checked(tmp_path, SMALL, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == ["a port is taken"]
    for form in ("table", "json"):
        assert checked(tmp_path, SMALL, "--offline", "--format", form) == 0
        assert "a port is taken" not in capsys.readouterr().out


SIDECAR = '[[listeners]]\nadvertised_host = "kafka-1"\nupstreams = { 1 = "127.0.0.1:29391" }\n'


def test_sidecar_whose_broker_advertises_itself_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_of(monkeypatch, {1: Address("kafka-1", 29391)})
    monkeypatch.setattr(check, "ask_advertised", lambda _: ({}, "broker 1 advertises itself"))
    assert checked(tmp_path, SIDECAR) == 1
    assert "sluice: broker 1 advertises itself" in capsys.readouterr().err


def test_sidecar_whose_broker_does_not_respond_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_of(monkeypatch, {1: Address("kafka-1", 19101)})
    assert checked(tmp_path, SIDECAR.replace("29391", str(free_ports(1)[0]))) == 0
    assert "warning: broker 1 did not report what it advertises: " in capsys.readouterr().out


def test_document_has_names_and_base_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.toml").write_text('[[quota]]\nclient_id = "reports"\nconsumer_byte_rate = "64Ki"\n')
    cluster_of(monkeypatch, {1: Address("h", 1), 3: Address("h", 3)})
    text = SMALL + '[quotas]\npolicy = "kip13"\nfile = "q.toml"\nproducer_default = "2M"\n'
    assert checked(tmp_path, text, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["problem"], document["warnings"]) == ("", [])
    assert document["quotas"]["limits"] == [
        {"client_id": "<default>", "quotas": {"producer_byte_rate": 2_000_000}},
        {"client_id": "reports", "quotas": {"consumer_byte_rate": 65_536.0}},
    ]
    assert document["listeners"][0]["first_broker_port"] == 19100
    assert document["admin"] == "127.0.0.1:19080"
    assert document["cluster"] == {
        "brokers": [{"id": 1, "address": "h:1"}, {"id": 3, "address": "h:3"}],
        "advertised_unknown": [],
        "without_port": [],
    }


def test_json_of_an_invalid_configuration_has_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, SMALL + "[limits]\nx = 1", "--format", "json") == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == f"sluice: {document['problem']}\n"
    assert set(document) == {"config", "problem", "warnings"}
    cluster_of(monkeypatch, {}, "cluster unreachable")
    assert checked(tmp_path, SMALL, "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["problem"] == "cluster unreachable"
    assert "listeners" in document
    assert "cluster" not in document


@pytest.mark.parametrize(
    ("differences", "code"), [([], 0), (["the mode differs: observe at gw-2; enforce at gw-1"], 3)]
)
def test_members_of_a_fleet_that_differ_are_a_negative_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    differences: list[str],
    code: int,
) -> None:
    cluster_of(monkeypatch, {1: Address("127.0.0.1", 9092)})
    members = Members("gw-2:19080", "", ["gw-1", "gw-2"], differences)
    asked: list[str] = []

    def ask(_config: Config, _definitions: Definitions, admin: str, _name: str) -> Members:
        asked.append(admin)
        return members

    monkeypatch.setattr(check_fleet, "ask_members", ask)
    text = SMALL + '[fleet]\nholder = "gw-1:19070"\n'
    assert checked(tmp_path, text, "--admin", "gw-2:19080") == code
    said = capsys.readouterr().out
    assert "members of the fleet, by gw-2:19080: gw-1, gw-2\n" in said
    assert said.endswith("is right, but members of the fleet differ.\n" if code else "is right.\n")
    assert all(f"  differs: {sentence}\n" in said for sentence in differences)
    assert checked(tmp_path, text, "--admin", "gw-2:19080", "--format", "json") == code
    document = json.loads(capsys.readouterr().out)
    assert document["members"]["differences"] == differences
    assert document["problem"] == ""
    assert asked == ["gw-2:19080"] * 2


TAKEN = f"{os.strerror(errno.EADDRINUSE)}, as it is while Sluice runs here"
NOT_HERE = os.strerror(errno.EADDRNOTAVAIL)


def warnings(listener: str, admin: str = "") -> list[str]:
    text = f'[cluster]\nbootstrap = "127.0.0.1:9092"\n[admin]\nbind = "{admin}"\n[[listeners]]\n{listener}'
    return list(machine_warnings(parsed(text)))


def ports(bootstrap: int, first: int, more: str = "") -> str:
    return f"bootstrap_port = {bootstrap}\nfirst_broker_port = {first}\nbroker_id_max = 0\n{more}"


def test_free_ports_and_an_address_are_no_warning() -> None:
    bootstrap, first = free_ports(2)
    assert warnings(ports(bootstrap, first)) == []


def test_ports_in_use_are_named_with_their_key() -> None:
    bootstrap, first, admin = free_ports(3)
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", admin)):
        assert warnings(ports(bootstrap, first), f"127.0.0.1:{admin}") == [
            f"listeners[0].first_broker_port: port {first} of 127.0.0.1 cannot be bound: {TAKEN}",
            f"admin.bind: port {admin} of 127.0.0.1 cannot be bound: {TAKEN}",
        ]


def test_ports_that_were_tried_are_free_again() -> None:
    bootstrap, first = free_ports(2)
    assert warnings(ports(bootstrap, first)) == []
    with socket.create_server(("127.0.0.1", bootstrap)), socket.create_server(("127.0.0.1", first)):
        pass


def test_many_ports_are_one_bounded_line() -> None:
    # An address of documentation (RFC 5737), which no machine has.
    single, many = warnings('bind = "192.0.2.1"\nbroker_id_max = 6\n')
    assert single == f"listeners[0].bootstrap_port: port 19090 of 192.0.2.1 cannot be bound: {NOT_HERE}"
    assert many == (
        "listeners[0].first_broker_port: ports 19100, 19101, 19102, 19103, 19104 and 2 more of 192.0.2.1 cannot be "
        f"bound: {NOT_HERE}"
    )


def test_advertised_host_that_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, *_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, f"nothing known of {host}")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    bootstrap, first = free_ports(2)
    (said,) = warnings(ports(bootstrap, first, 'advertised_host = "kafka.example"\n'))
    assert said == (
        "listeners[0].advertised_host: 'kafka.example' does not resolve on this machine (nothing known of "
        "kafka.example): clients are told this name, and have to resolve it"
    )
