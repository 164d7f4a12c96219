"""What `sluice check` says of a configuration and of a fleet's members; the member that is asked stands in."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.commands import check_text
from proxy.commands.check_text import Members, ask_members, compared, described, members_document
from proxy.commands.servers import ANYONE, Document
from proxy.config import Address, ClusterOptions, Config, FleetOptions, engine_options
from proxy.fleet.facts import facts_of
from proxy.fleet.messages import Facts
from proxy.system.admin_access import AdminAccess
from proxy.system.errors import ConfigError, ServerError
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import parse
from tests.support.configurations import parsed

CLUSTER = '[cluster]\nbootstrap = "127.0.0.1:9092"\n'
SMALL = CLUSTER + "[[listeners]]\nbroker_id_max = 3\n"
QUOTAS = SMALL + '[quotas]\nfile = "q.toml"\n'
SIDECAR = '[[listeners]]\nupstreams = { 1 = "127.0.0.1:29391" }\n'
REPLICATION = SIDECAR + 'kind = "replication"\n'
KEPT = "  kept in /etc/sluice/q.toml; altered by "
OWN = 'clients of listener "clients", from this machine alone'
OPS = '[quotas]\nfile = "q.toml"\nalter_principals = "ops"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL, "  kafka-configs cannot alter them: there is no quotas file (file = "),
        (SMALL + '[quotas]\nstore = "cluster"\n', "  altered at the brokers: these are their own quotas\n"),
        (
            QUOTAS + 'alter_principals = ["ops", "ci"]\n',
            KEPT
            + "user 'ops', user 'ci' (known only where clients log in, and neither [cluster] sasl_mechanism "
            f"nor a listener's client_auth says that they do), {OWN}\n",
        ),
        (QUOTAS + 'alter_principals = "*"\n', KEPT + "every client\n"),
        (
            CLUSTER + f'sasl_mechanism = "PLAIN"\nusername = "u"\npassword = "p"\n[[listeners]]\n{OPS}',
            KEPT + "user 'ops'\n",
        ),
        (
            f'{CLUSTER}[[listeners]]\ntls = {{ cert_file = "c", client_ca_file = "ca" }}\n{OPS}',
            f"{KEPT}user 'ops', {OWN}\n",
        ),
        (
            QUOTAS + '[fleet]\nholder = "gw-1:19070"\n',
            (
                "q.toml, at each member of the fleet; kafka-configs cannot alter them: "
                'store = "topic" under [quotas] lets it\n'
            ),
        ),
        (
            SMALL + 'bind = "0.0.0.0"\nadvertised_host = "h"\n[quotas]\nfile = "q.toml"\n',
            '  kafka-configs cannot alter them: no user may (alter_principals = ["NAME"] under [quotas])\n',
        ),
        (
            SMALL + "[quotas]\npartition_mutations_rate = 0.5",
            "  all clients together: 0.5 partition mutations/s, 5.5 at once\n",  # 11 windows of 1 s
        ),
        (
            SIDECAR + '[admin]\nbind = ""\n[quotas]\npolicy = "schedule"\n',
            """\
listener "clients": sidecar on 127.0.0.1, bootstrap port 19090, broker ports 19101
  in front of broker 1 at 127.0.0.1:29391; addresses in responses are not changed
quotas: policy schedule, mode enforce, scope broker, bursts of 1 s, holds up to 15 s, mutes up to 20 s
  kafka-configs cannot alter them: there is no quotas file (file = "quotas.toml" under [quotas])
  every other client id: no producer and no consumer limit
admin: none
""",
        ),
        (
            CLUSTER + REPLICATION,
            'listener "clients": replication on 127.0.0.1, no bootstrap port, broker ports 19101\n',
        ),
        (CLUSTER + REPLICATION, "replication: policy schedule, throttled as the cluster's own configs say\n"),
        (CLUSTER + REPLICATION + '[replication]\nthrottled = "off"', "replication: not throttled\n"),
        (
            CLUSTER + REPLICATION + '[replication]\nthrottled = "reassignments"\n'
            'leader_rate = "4M"\npolicy = "kip73"',
            "replication: policy kip73, throttled: what reassignments add; leaders 4M bytes/s, followers unlimited\n",
        ),
        (
            CLUSTER + REPLICATION + '[leases]\npeers = ["a", "b"]\nname = "a"\n'
            'holder = "127.0.0.1:19070"\nbind = "127.0.0.1:19070"\n',
            (
                "fleet: 'a', one of at most 2 members; the holder is this process\n"
                "  members reach it at 127.0.0.1:19070: 127.0.0.1:19070, not signed\n"
            ),
        ),
        (
            SMALL + '[reassignment]\nmode = "batch"\njournal = "/shared"\n',
            (
                "reassignments: 1 replica of a partition, 10 partitions, 2 leaders, 20 replicas in all at once; "
                "journal in /shared\n"
            ),
        ),
    ],
)
def test_configuration_is_described(text: str, said: str) -> None:
    assert said in "".join(f"{line}\n" for line in described(parsed(text), Definitions()))


USERS = '[[quota]]\nuser = "<default>"\nproducer_byte_rate = 7\n'
USER = '[[quota]]\nuser = "u"\nconsumer_byte_rate = 5\n'
NEARER = '[[quota]]\nuser = "<default>"\nclient_id = "c"\nproducer_byte_rate = 6\n'
BOTH = '[[quota]]\nuser = "u"\nclient_id = "c"\nconsumer_byte_rate = 5\n'
IDS = '[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 7\n'


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        (USERS + USER, "  user 'u': consumer_byte_rate 5; as every other user producer_byte_rate 7"),
        (USERS + NEARER + USER, "  user 'u': consumer_byte_rate 5"),
        (IDS + BOTH, "  client id 'c' of user 'u': consumer_byte_rate 5"),
        (
            (USERS + USER).replace("user", "topic"),
            "  topic 'u': consumer_byte_rate 5; as every other topic producer_byte_rate 7",
        ),
    ],
    ids=["user", "user, another default is nearer", "both", "topic"],
)
def test_override_is_listed_with_what_the_default_entity_gives_it(tables: str, line: str) -> None:
    assert line in list(check_text.quotas(parsed(SMALL), parse(tables)))


def test_long_lists_are_cut() -> None:
    many = Definitions({Entity(client_id=f"c{n}"): {"producer_byte_rate": 5.0} for n in range(60)})
    lines = list(check_text.quotas(parsed(SMALL), many))
    assert sum(line.endswith("producer_byte_rate 5") for line in lines) == 50
    assert "  and 10 more" in lines


HOLDER = Address("gw-1", 19070)
OTHER = FleetOptions(name="gw-2", holder=HOLDER)
MEMBER = FleetOptions(name="gw-2", bind=Address("127.0.0.1", 19070))
OPS_BROKERS = (Address("ops1", 9092), Address("ops2", 9092))


@pytest.mark.parametrize(
    ("options", "first", "more"),
    [
        (
            FleetOptions(name="gw-1", holder=HOLDER, bind=Address("0.0.0.0", 19070)),
            "fleet: 'gw-1', one of at most 8 members; the holder is this process",
            ["  members reach it at gw-1:19070: 0.0.0.0:19070, not signed"],
        ),
        (OTHER, "fleet: 'gw-2', one of at most 8 members; the holder is gw-1:19070", []),
        (
            replace(MEMBER, bootstrap=OPS_BROKERS, cluster=ClusterOptions(OPS_BROKERS)),
            "fleet: 'gw-2', one of at most 8 members; the holder is chosen by the group __sluice",
            [
                "  its own cluster, for the group and Sluice's topics: ops1:9092, ops2:9092",
                "  members reach it at 127.0.0.1:19070: 127.0.0.1:19070, not signed",
            ],
        ),
    ],
    ids=["holder", "another holds", "group"],
)
def test_check_says_who_holds(options: FleetOptions, first: str, more: list[str]) -> None:
    assert list(check_text.fleet(options)) == [first, *more]


def test_document_has_the_fleet() -> None:
    assert check_text.fleet_document(FleetOptions()) is None
    assert check_text.fleet_document(OTHER) == {
        "name": "gw-2",
        "members_max": 8,
        "holder": "gw-1:19070",
        "group": None,
        "bootstrap": [],
        "holds": False,
        "cut_off": "share",
    }


def test_secret_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "fleet.secret"
    options = FleetOptions(holder=HOLDER, secret_file=path)
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


FILE = "sluice.toml"
FLEET = '[cluster]\nbootstrap = "10.0.0.9:9092"\n[[listeners]]\n[fleet]\nholder = "gw-1:19070"\n'
NAMES = "members of the fleet, by 127.0.0.1:19080: gw-1, gw-2"


def made(quotas: str = "", admin: str = "") -> Config:
    return parsed(f"{FLEET}[quotas]\n{quotas}\n{admin}")


def limits(rate: float = 5) -> Definitions:
    return Definitions({Entity("ann"): {"producer_byte_rate": rate}})


def facts(config: Config, definitions: Definitions) -> Facts:
    definitions.keep_digest()
    found = facts_of(config.quotas, config.reassignment, 8, engine_options(config), definitions)
    return {**found, "version": "0.0"}


def page(*disagreements: str, **changed: str) -> Document:
    """What gw-1 shows, which has the configuration without quotas of its own, but for what is changed."""
    said = {**facts(made(), limits()), **changed}
    members = [{"name": "gw-1", "run": "1", **said}, {"name": "gw-2", "run": "2"}]
    return {"member": True, "run": "1", "members": members, "disagreements": list(disagreements)}


def asked(
    monkeypatch: pytest.MonkeyPatch,
    shown: Document | ServerError,
    config: Config | None = None,
    definitions: Definitions | None = None,
    admin: str | None = None,
) -> Members:
    pages = {}

    def read(address: str, path: str, _: AdminAccess) -> Document:
        pages[address] = path
        if isinstance(shown, ServerError):
            raise shown
        return shown

    monkeypatch.setattr(check_text, "read_document", read)
    found = ask_members(config or made(), definitions or limits(), admin, ANYONE, FILE)
    assert pages in ({found.asked: "/fleet"}, {})
    return found


def test_nothing_is_said_without_a_fleet() -> None:
    assert list(compared(None)) == []


def test_member_that_has_this_configuration_differs_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page())
    assert found == Members("127.0.0.1:19080", "", ["gw-1", "gw-2"], [])
    assert list(compared(found)) == [NAMES]


def test_what_members_have_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page("the mode differs: observe at gw-2; enforce at gw-1"))
    assert list(compared(found)) == [NAMES, "  differs: the mode differs: observe at gw-2; enforce at gw-1"]
    assert members_document(found) == {
        "asked": "127.0.0.1:19080",
        "problem": "",
        "names": ["gw-1", "gw-2"],
        "differences": ["the mode differs: observe at gw-2; enforce at gw-1"],
    }


def test_configuration_that_the_member_does_not_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page(), made('policy = "kip13"'))
    assert found.differences == ["the policy differs: kip13 at sluice.toml; schedule at gw-1"]
    quotas = asked(monkeypatch, page(), definitions=limits(6)).differences
    assert [text.partition(":")[0] for text in quotas] == ["the quotas differ"]


def test_quotas_of_a_topic_are_not_in_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page(store="topic __sluice-quotas", quotas_digest="00")
    assert asked(monkeypatch, shown, made('store = "topic"'), Definitions()).differences == []


@pytest.mark.parametrize(
    ("bind", "admin", "address"),
    [
        ("0.0.0.0:9", None, "127.0.0.1:9"),
        ("[::]:9", None, "[::1]:9"),
        ("10.0.0.1:9", None, "10.0.0.1:9"),
        ("10.0.0.1:9", "gw-2:9", "gw-2:9"),
    ],
)
def test_member_of_this_configuration_is_asked_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, bind: str, admin: str | None, address: str
) -> None:
    config = made(admin=f'[admin]\nbind = "{bind}"\n')
    assert asked(monkeypatch, page(), config, admin=admin).asked == address


def test_member_whose_port_speaks_tls_is_asked_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = made(admin='[admin.tls]\ncert_file = "gw-1.pem"\n')
    assert asked(monkeypatch, page(), config).asked == "https://127.0.0.1:19080"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('bind = ""', "admin: none"),
        ("", "admin: http://127.0.0.1:19080/"),
        (
            'token_file = "t"\n[admin.tls]\ncert_file = "c"\nclient_ca_file = "a"',
            "admin: https://127.0.0.1:19080/, a token, client certificates required",
        ),
    ],
)
def test_what_the_admin_port_asks_for_is_told(keys: str, said: str) -> None:
    assert check_text.admin(parsed(f"{SMALL}[admin]\n{keys}\n").admin) == said


@pytest.mark.parametrize(
    ("shown", "admin", "problem"),
    [
        (ServerError("h:1: Connection refused"), "h:1", "h:1: Connection refused"),
        ({"member": False}, "h:1", "h:1 is no member of a fleet"),
        (page(), "", "this configuration has no admin port; --admin names a member's"),
    ],
    ids=["no response", "no member", "no admin port"],
)
def test_member_that_cannot_be_asked_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, shown: Document | ServerError, admin: str, problem: str
) -> None:
    found = asked(monkeypatch, shown, made(admin=f'[admin]\nbind = "{admin}"\n'))
    assert list(compared(found)) == [f"warning: the members of the fleet were not compared: {problem}"]
    assert not found.differences


def test_member_that_has_just_begun_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, {**page(), "run": "3"}, made('policy = "schedule"')).differences == []
