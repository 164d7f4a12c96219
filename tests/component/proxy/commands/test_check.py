"""`sluice check`: what it says of a configuration, and its exit code. The cluster stands in."""

import errno
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from proxy.commands import check, check_text
from proxy.commands.check import machine_warnings
from proxy.commands.check_text import Members
from proxy.config import Address, Config
from proxy.system import compiled
from proxy.system.admin_access import AdminAccess
from proxy.system.errors import SluiceError
from proxy.topics.topic import ProblemError, TopicSpec
from quotas.definitions.definitions import Definitions
from tests.cluster import free_ports
from tests.support.certificates import Authority
from tests.support.command_line import Sluice
from tests.support.configurations import parsed

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\nbroker_id_max = 3\n'
Checked = Callable[..., str]


@pytest.fixture
def checked(sluice: Sluice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Check a configuration without an environment: the text, more arguments, the exit code; gives the output."""
    monkeypatch.setattr("os.environ", {})

    def run(text: str, *more: str, code: int = 0) -> str:
        (tmp_path / "sluice.toml").write_text(text)
        return sluice("check", "--config", tmp_path / "sluice.toml", *more, code=code)

    return run


def cluster_of(monkeypatch: pytest.MonkeyPatch, brokers: Mapping[int, Address], problem: str = "") -> None:
    def ask(_: Config) -> Mapping[int, Address]:
        if problem:
            raise SluiceError(problem)
        return brokers

    monkeypatch.setattr(check, "ask_cluster", ask)
    # What else runs here is not the test's affair.
    monkeypatch.setattr(check, "machine_warnings", lambda _: ())


def test_gateway_is_described(checked: Checked, tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(
        '[[quota]]\nclient_id = "reports"\nconsumer_byte_rate = "64Ki"\n'
        '[[quota]]\nuser = "u"\nproducer_byte_rate = 5000\n'
    )
    quotas = 'policy = "kip13"\nfile = "q.toml"\nproducer_default = "2M"\nproducer_override = "a:4M"\n'
    assert checked(f"{SMALL}[quotas]\n{quotas}", "--offline").splitlines() == [
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
        f"data path: {compiled.form()}",
        f"{tmp_path / 'sluice.toml'} is right; the cluster was not asked.",
    ]


def test_settings_without_effect_are_reported(checked: Checked, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "q.toml").write_text('[[quota]]\nclient_id = "app-*"\nproducer_byte_rate = "5M"\n')
    text = SMALL + '[quotas]\npolicy = "schedule"\nfile = "q.toml"\n'
    text += '[replication]\nleader_rate = "5M"\nthrottled = "file"\n'
    lines = checked(text + '[state]\ndirectory = "file"\n', "--offline").splitlines()
    said = [line for line in lines if line.startswith("warning: ")]
    assert [line.partition(":")[2].partition(": ")[0].strip() for line in said] == [
        "replication",
        "state.directory",
        str(tmp_path / "q.toml"),
    ]
    assert "quota of client id 'app-*': there are no patterns" in said[2]
    assert checked(text, "--offline").endswith(
        "sluice.toml is right, with 2 warnings; the cluster was not asked.\n"
    )


def test_check_names_the_brokers(checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_of(monkeypatch, {1: Address("h", 1), 3: Address("h", 3)})
    assert checked(SMALL).splitlines()[-4:] == [
        "cluster: 2 brokers",
        "  broker 1 at h:1",
        "  broker 3 at h:3",
        f"{tmp_path / 'sluice.toml'} is right.",
    ]


@pytest.mark.parametrize("form", ["table", "json"])
def test_broker_without_a_port_fails_the_check(
    checked: Checked, sluice: Sluice, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    cluster_of(monkeypatch, {1: Address("h", 1), 7: Address("h", 7)})
    out = checked(SMALL, "--format", form, code=1)
    said = 'listener "clients" has no port for broker 7, so clients do not learn of it'
    assert sluice.err == f"sluice: {said}: write broker_id_max = 7 (now 3) and restart\n"
    if form == "table":
        assert "  broker 7 at h:7\n" in out
        assert "is right" not in out
    else:
        document = json.loads(out)
        assert document["problem"].startswith(said)
        assert document["cluster"]["without_port"] == [{"listener": "clients", "brokers": [7]}]


def test_unreachable_cluster_fails_the_check(
    checked: Checked, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of(monkeypatch, {}, "cluster unreachable: h:1: Connection refused")
    assert "is right" not in checked(SMALL, code=1)
    assert sluice.err == "sluice: cluster unreachable: h:1: Connection refused\n"
    document = json.loads(checked(SMALL, "--format", "json", code=1))
    assert document["problem"] == "cluster unreachable: h:1: Connection refused"
    assert "listeners" in document
    assert "cluster" not in document


@pytest.mark.parametrize(
    ("text", "line"),
    [("[limits]\nx = 1", "sluice: limits.x: unknown key"), ('[quotas]\nfile = "none.toml"', "sluice: ")],
)
def test_wrong_configuration_is_one_line(checked: Checked, sluice: Sluice, text: str, line: str) -> None:
    assert checked(SMALL + text, "--offline", code=1) == ""
    assert sluice.err.startswith(line)
    assert sluice.err.count("\n") == 1
    document = json.loads(checked(SMALL + text, "--offline", "--format", "json", code=1))
    assert sluice.err == f"sluice: {document['problem']}\n"
    assert set(document) == {"config", "problem", "warnings"}


def test_findings_about_this_machine_are_warnings(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_of(monkeypatch, {1: Address("h", 1)})
    monkeypatch.setattr(check, "machine_warnings", lambda _: iter(["a port is taken"]))
    assert "warning: a port is taken\ncluster: 1 broker\n" in checked(SMALL)
    assert json.loads(checked(SMALL, "--format", "json"))["warnings"] == ["a port is taken"]
    for form in ("table", "json"):
        assert "a port is taken" not in checked(SMALL, "--offline", "--format", form)


SIDECAR = '[[listeners]]\nadvertised_host = "kafka-1"\nupstreams = { 1 = "127.0.0.1:29391" }\n'


def test_sidecar_whose_broker_advertises_itself_fails_the_check(
    checked: Checked, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of(monkeypatch, {1: Address("kafka-1", 29391)})
    monkeypatch.setattr(check, "ask_advertised", lambda _: ({}, "broker 1 advertises itself"))
    checked(SIDECAR, code=1)
    assert "sluice: broker 1 advertises itself" in sluice.err


def test_sidecar_whose_broker_does_not_respond_is_warned_of(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of(monkeypatch, {1: Address("kafka-1", 19101)})
    said = checked(SIDECAR.replace("29391", str(free_ports(1)[0])))
    assert "warning: broker 1 did not report what it advertises: " in said


def test_document_has_names_and_base_units(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.toml").write_text('[[quota]]\nclient_id = "reports"\nconsumer_byte_rate = "64Ki"\n')
    cluster_of(monkeypatch, {1: Address("h", 1), 3: Address("h", 3)})
    text = SMALL + '[quotas]\npolicy = "kip13"\nfile = "q.toml"\nproducer_default = "2M"\n'
    document = json.loads(checked(text, "--format", "json"))
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


@pytest.mark.parametrize(
    ("differences", "code"), [([], 0), (["the mode differs: observe at gw-2; enforce at gw-1"], 3)]
)
def test_members_of_a_fleet_that_differ_are_a_negative_result(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, differences: list[str], code: int
) -> None:
    cluster_of(monkeypatch, {1: Address("127.0.0.1", 9092)})
    members = Members("gw-2:19080", "", ["gw-1", "gw-2"], differences)
    asked: list[str] = []

    def ask(
        _config: Config, _definitions: Definitions, admin: str, _access: AdminAccess, _name: str
    ) -> Members:
        asked.append(admin)
        return members

    monkeypatch.setattr(check_text, "ask_members", ask)
    text = SMALL + '[fleet]\nholder = "gw-1:19070"\n'
    said = checked(text, "--admin", "gw-2:19080", code=code)
    assert said.endswith("is right, but members of the fleet differ.\n" if code else "is right.\n")
    assert all(line + "\n" in said for line in check_text.compared(members))
    document = json.loads(checked(text, "--admin", "gw-2:19080", "--format", "json", code=code))
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


def test_free_ports_are_no_warning_and_free_again() -> None:
    bootstrap, first = free_ports(2)
    assert warnings(ports(bootstrap, first)) == []
    with socket.create_server(("127.0.0.1", bootstrap)), socket.create_server(("127.0.0.1", first)):
        pass


def test_ports_in_use_are_named_with_their_key() -> None:
    bootstrap, first, admin = free_ports(3)
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", admin)):
        assert warnings(ports(bootstrap, first), f"127.0.0.1:{admin}") == [
            f"listeners[0].first_broker_port: port {first} of 127.0.0.1 cannot be bound: {TAKEN}",
            f"admin.bind: port {admin} of 127.0.0.1 cannot be bound: {TAKEN}",
        ]


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


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize(("topic", "code"), [("audit", 0), ("quotas", 1)])
def test_topic_that_cannot_be_read_fails_the_check_if_quotas_are_in_it(
    checked: Checked, sluice: Sluice, monkeypatch: pytest.MonkeyPatch, form: str, topic: str, code: int
) -> None:
    async def state(_: object, spec: TopicSpec) -> str:
        if topic in spec.name:
            raise ProblemError("denied", f"topic {spec.name}: may not be read")
        return "can be read and written"

    cluster_of(monkeypatch, {1: Address("h", 1)})
    monkeypatch.setattr(check, "topic_state", state)
    monkeypatch.setattr(check, "unguarded_warnings", lambda *_: ())
    monkeypatch.setattr(check, "ask_advertised", lambda _: ({}, ""))
    text = f'{SMALL}[quotas]\nstore = "topic"\ntopic = "quotas"\naudit_topic = "audit"\n'
    out = checked(text, "--format", form, code=code)
    said = f"topic {topic}: may not be read"
    if code:
        assert sluice.err == f"sluice: {said}\n"
        assert form == "table" or json.loads(out)["problem"] == said
    elif form == "json":
        document = json.loads(out)
        assert said in document["warnings"]
        assert document["topics"] == ["topic quotas: can be read and written"]
    else:
        assert f"warning: {said}\n" in out


@pytest.mark.parametrize("form", ["table", "json"])
def test_names_that_do_not_resolve_or_that_no_certificate_has_are_named(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    def lookup(host: str, *_: object, **__: object) -> None:
        if host == "b2.kafka.test":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(check, "ask_advertised", lambda _: ({}, ""))
    cluster_of(monkeypatch, {number: Address("h", number) for number in (1, 2, 3)})
    authority = Authority.make(tmp_path)
    own = authority.issue("own", names="subjectAltName=DNS:kafka.test,DNS:b1.kafka.test").store_file
    listener = 'broker_host = "b{id}.kafka.test"\nadvertised_host = "kafka.test"\n'
    text = f'[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\n{listener}[listeners.tls]\ncert_file = "{own}"\n'
    out = checked(text, "--format", form)
    said = [
        (
            "listeners[0].broker_host: 'b2.kafka.test' does not resolve on this machine (unknown): clients are told "
            "this name, and have to resolve it"
        ),
        (
            "listeners[0].tls.cert_file: no certificate has the name 'b2.kafka.test' (nor 1 more): clients refuse the "
            "connection"
        ),
    ]
    if form == "json":
        document = json.loads(out)
        assert [one for one in document["warnings"] if one.startswith("listeners")] == said
        assert (document["listeners"][0]["broker_host"], document["problem"]) == ("b{id}.kafka.test", "")
    else:
        assert "clients see kafka.test:19090, and broker N at bN.kafka.test:19090\n" in out
        assert "bootstrap port 19090, brokers by name; no other name\n" in out
        assert [line for line in out.splitlines() if line.startswith("warning: listeners")] == [
            f"warning: {one}" for one in said
        ]
