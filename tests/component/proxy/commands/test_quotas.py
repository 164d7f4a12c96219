"""`sluice quotas` against a server that responds as Sluice does, from a file: what is printed, sent, and refused."""

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_client import quotas as quota_client
from protocol.header import body_start
from proxy.channel import Question
from proxy.config import QuotaSettings
from proxy.control.quotas import FileStore
from proxy.control.quotas.responses import Permissions, handle_request
from quotas.definitions.toml_file import parse, parse_limit
from tests.support.command_line import Sluice
from tests.support.frame_server import serving

FILE = """\
# Ours.
[[quota]]
client_id = "a"
producer_byte_rate = 1000
[[quota]]
user = "ann"
client_id = "<default>"
request_percentage = 12.5
"""
BOB = '[[quota]]\nuser = "bob"\nproducer_byte_rate = 1\n'


class Server:
    """Responds to the quota API from a file, and counts what was sent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = ""
        self.store = FileStore(QuotaSettings(file=path))
        self.permissions = Permissions(frozenset("*"))
        self.altered = 0
        self.silent = False  # closes the connection without a response
        self.stuck = False  # never responds

    def respond(self, frame: bytes) -> bytes | None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        start = body_start(frame, 0, len(frame), key, version)
        assert start is not None
        if self.silent or self.stuck:
            return None if self.silent else b""
        self.altered += key == 49
        asked = Question(key, version, correlation_id, frame, start, "ANONYMOUS", trusted=False)
        return bytes(handle_request(self.store, self.permissions, asked).frame)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    path = tmp_path / "quotas.toml"
    path.write_text(FILE)
    made = Server(path)
    with serving(made.respond) as port:
        made.address = f"127.0.0.1:{port}"
        yield made


class Tool:
    """Runs `sluice quotas` against the server; `err` is what it printed on standard error."""

    def __init__(self, server: Server, sluice: Sluice, directory: Path) -> None:
        self.server = server
        self._sluice = sluice
        self._file = directory / "wanted"  # its format is told by its text

    @property
    def err(self) -> str:
        return self._sluice.err

    def __call__(self, name: str, *words: object, code: int = 0) -> str:
        return self._sluice("quotas", name, "--bootstrap-server", self.server.address, *words, code=code)

    def document(self, name: str, *words: object, code: int = 0) -> Any:
        return json.loads(self(name, *words, "--format", "json", code=code))

    def file(self, text: str) -> Path:
        """A file with the quotas that are wanted."""
        self._file.write_text(text)
        return self._file


@pytest.fixture
def tool(server: Server, sluice: Sluice, tmp_path: Path) -> Tool:
    return Tool(server, sluice, tmp_path)


def test_show_lists_everything(tool: Tool) -> None:
    assert tool("show") == (
        "client id 'a': producer_byte_rate=1000\nuser 'ann', client id <default>: request_percentage=12.5\n"
    )
    assert tool.document("show")[0] == {"client_id": "a", "quotas": {"producer_byte_rate": 1000.0}}


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("--client-id a", 1),
        ("--client-id <default>", 1),
        ("--client-id *", 2),
        ("--client-id * --strict", 1),
        ("--user ann", 1),
        ("--user ann --strict", 0),
        ("--ip *", 0),
    ],
)
def test_show_filters(tool: Tool, words: str, lines: int) -> None:
    assert len(tool("show", *words.split()).splitlines()) == lines


def test_show_of_nothing_says_so(tool: Tool) -> None:
    assert (tool("show", "--user", "carl"), tool.err) == ("", "no quotas are set for this entity\n")
    tool("remove", "--client-id", "a")
    tool("remove", "--user", "ann", "--client-id", "<default>")
    assert (tool("show"), tool.err) == ("", "no quotas are set\n")
    assert (tool("show", "--format", "json"), tool.err) == ("[]\n", "")


def test_set_changes_the_named_quotas_and_is_idempotent(tool: Tool) -> None:
    printed = tool("set", "--client-id", "a", "producer_byte_rate=2M", "consumer_byte_rate=5")
    assert printed == (
        "~ client id 'a': producer_byte_rate 1000 -> 2000000\n+ client id 'a': consumer_byte_rate 5\n"
    )
    assert tool.server.altered == 1
    assert tool("set", "--client-id", "a", "producer_byte_rate=2000000") == "nothing to change\n"
    assert tool("set", "--client-id", "a", "producer_byte_rate=2000000", "--format", "json") == "[]\n"
    assert tool.server.altered == 1
    assert "producer_byte_rate = 2000000\nconsumer_byte_rate = 5\n" in tool.server.path.read_text()


def test_remove_takes_keys_or_all(tool: Tool) -> None:
    tool("set", "--client-id", "a", "consumer_byte_rate=5")
    assert tool.document("remove", "--client-id", "a", "consumer_byte_rate") == [
        {"client_id": "a", "key": "consumer_byte_rate", "old": 5.0, "new": None}
    ]
    assert tool("remove", "--client-id", "a") == "- client id 'a': producer_byte_rate 1000\n"
    assert tool("remove", "--client-id", "a") == "nothing to change\n"
    assert len(parse(tool.server.path.read_text())) == 1


def test_dry_run_is_judged_and_changes_nothing(tool: Tool) -> None:
    tool("set", "--ip", "::1", "connection_creation_rate=5", "--dry-run")
    assert tool.server.altered == 1
    tool("set", "--ip", "no-host", "connection_creation_rate=5", "--dry-run", code=1)
    assert "no-host is not a valid IP" in tool.err
    assert tool.server.path.read_text() == FILE


def test_apply_diff_and_export_go_round(tool: Tool) -> None:
    file = tool.file(
        '[[quota]]\nclient_id = "a"\nproducer_byte_rate = "2k"\n[[quota]]\nuser = "bob"\nproducer_byte_rate = 1\n'
    )
    planned = tool("diff", file, "--prune", code=3)
    assert planned == (
        "~ client id 'a': producer_byte_rate 1000 -> 2000\n+ user 'bob': producer_byte_rate 1\n"
        "- user 'ann', client id <default>: request_percentage 12.5\n"
    )
    assert tool.server.altered == 0
    dry = f"dry run: validated, and nothing is changed\n{planned}"
    assert tool("apply", file, "--prune", "--dry-run") == dry
    assert tool.server.path.read_text() == FILE
    assert tool("apply", file, "--prune") == planned
    assert tool("diff", file, "--prune") == "nothing to change\n"
    assert tool("apply", tool.file(tool("export")), "--prune") == "nothing to change\n"
    assert tool.server.path.read_text().startswith("# Ours.\n")


def test_apply_keeps_quotas_that_the_file_does_not_name(tool: Tool) -> None:
    assert tool("apply", tool.file(BOB)) == "+ user 'bob': producer_byte_rate 1\n"
    assert len(parse(tool.server.path.read_text())) == 3


def test_apply_reads_standard_input(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('[{"user": "bob", "quotas": {"producer_byte_rate": 1}}]'))
    tool("apply", "-")
    assert len(parse(tool.server.path.read_text())) == 3


def test_format_of_a_file_is_told_by_its_name_or_by_an_option(tool: Tool, tmp_path: Path) -> None:
    for name, words in (("wanted.json", ()), ("wanted.toml", ("--file-format", "json")), ("wanted", ())):
        (tmp_path / name).write_text('[{"user": "bob", "quotas": {"producer_byte_rate": 1}}]')
        assert tool("diff", tmp_path / name, *words, code=3) == "+ user 'bob': producer_byte_rate 1\n"
    changes = tool.document("diff", tmp_path / "wanted.json", code=3)
    assert changes == [{"user": "bob", "key": "producer_byte_rate", "old": None, "new": 1.0}]


@pytest.mark.parametrize(
    ("words", "start", "instead"),
    [("--format toml", "+", "--file-format toml"), ("--json", "[", "--format json")],
)
def test_old_spellings_work_with_a_warning(tool: Tool, words: str, start: str, instead: str) -> None:
    printed = tool("diff", tool.file(BOB), *words.split(), code=3)
    assert "bob" in printed
    assert printed.startswith(start)
    assert tool.err == f"sluice quotas diff: warning: {words} is an old spelling: use {instead}\n"


def test_dry_run_as_json_says_so_beside_the_document(tool: Tool) -> None:
    assert tool.document("set", "--user", "bob", "producer_byte_rate=1M", "--dry-run")
    assert tool.err == "dry run: validated, and nothing is changed\n"


def test_thousands_of_entities_are_sent_in_portions(tool: Tool) -> None:
    many = "".join(f'[[quota]]\nuser = "u{n}"\nproducer_byte_rate = 1\n' for n in range(2500))
    assert len(tool("apply", tool.file(many)).splitlines()) == 2500
    assert tool.server.altered == 3


def test_export_as_jikkou_names_quotas_without_a_jikkou_form(tool: Tool) -> None:
    tool("set", "--ip", "::1", "connection_creation_rate=5")
    printed = tool("export", "--format", "jikkou")
    assert printed.count("kind: KafkaClientQuota") == 2
    assert "ip '::1' is left out" in tool.err
    assert tool.document("export")[2] == {"ip": "::1", "quotas": {"connection_creation_rate": 5.0}}


def test_topics_and_users_connections_are_set_and_shown(tool: Tool) -> None:
    tool("set", "--topic", "orders", "producer_byte_rate=2M")
    tool("set", "--topic", "<default>", "consumer_byte_rate=3")
    tool("set", "--user", "<default>", "connection_creation_rate=5")
    assert tool("show", "--topic", "orders") == "topic 'orders': producer_byte_rate=2000000\n"
    assert tool("show", "--topic", "<default>") == "topic <default>: consumer_byte_rate=3\n"
    assert len(tool("show", "--topic", "*").splitlines()) == 2
    tool("remove", "--topic", "orders")
    assert tool("show", "--topic", "orders") == ""
    tool("export", "--format", "jikkou")
    assert "topic <default> is left out: jikkou has no such quota type" in tool.err
    assert "connection_creation_rate of user <default> is left out: jikkou has no such key" in tool.err


def test_refusal_is_one_line(tool: Tool) -> None:
    tool.server.permissions = Permissions()
    tool("set", "--user", "bob", "producer_byte_rate=1M", code=1)
    said = "sluice: user 'bob': Cluster authorization failed: 'ANONYMOUS' is not in [quotas] alter_principals. Log in"
    assert tool.err.startswith(said)
    assert tool.err.count("\n") == 1
    tool.server.permissions = Permissions(frozenset(), frozenset())
    tool("show", code=1)
    assert "describe_principals" in tool.err


def test_command_config_that_is_not_there_is_one_line(tool: Tool) -> None:
    tool("show", "--command-config", "/nowhere", code=1)
    assert tool.err == "sluice: /nowhere: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("set producer_byte_rate=1M", "name an entity"),
        (
            "set --ip ::1 --user u connection_creation_rate=1",
            "--ip cannot be combined with --user: an address has a limit of new connections",
        ),
        (
            "show --topic t --user u --client-id c",
            "--topic cannot be combined with --user and --client-id: a topic's quota is shared by all clients",
        ),
        ("set --user u producer_byte_rate", "is not KEY=VALUE"),
    ],
)
def test_wrong_quota_arguments_are_a_usage_error(tool: Tool, words: str, said: str) -> None:
    tool(*words.split(), code=2)
    assert said in tool.err


@pytest.mark.parametrize("value", ["0", "x", "1.5", "nan"])
def test_wrong_value_is_never_sent(tool: Tool, value: str) -> None:
    tool("set", "--user", "u", f"producer_byte_rate={value}", code=1)
    assert tool.err.startswith("sluice: producer_byte_rate: ")
    assert tool.server.altered == 0


def test_wrong_file_names_its_place(tool: Tool, tmp_path: Path) -> None:
    file = tool.file('[[quota]]\nuser = "u"\nproducer_byte_rate = 0\n')
    tool("apply", file, code=1)
    assert f"{file}: quota[0].producer_byte_rate: must be greater than 0" in tool.err
    tool("diff", tmp_path / "none", code=1)
    assert "cannot be read" in tool.err


def test_closed_connection_is_one_line(tool: Tool) -> None:
    tool.server.silent = True
    tool("show", code=1)
    assert "closed the connection without a response" in tool.err


def test_server_that_never_responds_is_left(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_client, "DESCRIBE_SECONDS_MAX", 0.05)
    tool.server.stuck = True
    tool("show", code=1)
    assert tool.err == f"sluice: {tool.server.address}: no response within 0.05 s\n"


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("--client-id team-*", "quota of client id 'team-*': there are no patterns, as in Kafka"),
        ("--user *", "quota of user '*': there are no patterns, as in Kafka"),
        ("--user User:ann", "quota of user 'User:ann': users are named without their principal's type"),
    ],
)
def test_name_that_looks_like_a_pattern_is_set_with_a_warning(tool: Tool, words: str, warning: str) -> None:
    assert tool("set", *words.split(), "producer_byte_rate=5M").startswith("+ ")
    assert tool.err.startswith(f"sluice: warning: {warning}")
    assert tool.err.count("\n") == 1


def test_rate_without_its_unit_is_set_with_a_warning(tool: Tool) -> None:
    assert tool("set", "--client-id", "a", "producer_byte_rate=2").startswith("~ ")
    said = "quota of client id 'a': producer_byte_rate = 2 is 2 bytes a second, less than one request: with a unit"
    assert tool.err == f'sluice: warning: {said} it is "2k" or "2M"\n'


def test_file_with_a_pattern_is_applied_with_a_warning(tool: Tool) -> None:
    file = tool.file('[[quota]]\nclient_id = "team-*"\nproducer_byte_rate = 1\n')
    tool("apply", file)
    assert f"sluice: warning: {file}: quota of client id 'team-*': there are no patterns" in tool.err


@pytest.mark.parametrize("amount", ["-1", "-2M", "-0.5"])
def test_negative_quota_is_refused_with_the_allowed_range(tool: Tool, amount: str) -> None:
    tool("set", "--client-id", "a", f"consumer_byte_rate={amount}", code=1)
    said = f"sluice: consumer_byte_rate: must be greater than 0, not {parse_limit(amount, '')}"
    assert tool.err == f"{said}; without the key there is no limit\n"


@pytest.mark.parametrize(("command", "meaning"), [("show", "* for every name"), ("set", "letter by letter")])
def test_help_explains_the_star(sluice: Sluice, command: str, meaning: str) -> None:
    assert meaning in " ".join(sluice("quotas", command, "--help").split())


def test_next_address_is_tried(tool: Tool, sluice: Sluice) -> None:
    sluice("quotas", "show", "--bootstrap-server", f"127.0.0.1:1,{tool.server.address}")
    sluice("quotas", "show", "--bootstrap-server", "127.0.0.1:1", code=1)
    assert "127.0.0.1:1: " in sluice.err


def test_explain_says_which_entity_applies(tool: Tool) -> None:
    tool("set", "--client-id", "<default>", "producer_byte_rate=9000")
    assert "producer_byte_rate: 9000\n" in tool("explain", "--client-id", "web-1")
    found = tool.document("explain", "--client-id", "web-1")["keys"]["producer_byte_rate"]
    assert [one["entity"] for one in found if one["applies"]] == ["client-id <default>"]


@pytest.mark.parametrize(("name", "key"), [("set", "producer-byterate=5"), ("remove", "producer-byterate")])
def test_misspelt_key_gets_a_guess_and_changes_nothing(tool: Tool, name: str, key: str) -> None:
    assert tool(name, "--client-id", "a", key, code=1) == ""
    assert tool.err.startswith("sluice: producer-byterate: unknown key")
    assert tool.err.endswith("; did you mean 'producer_byte_rate'?\n")
    assert tool.server.altered == 0


def test_key_of_another_kind_of_entity_gets_those_of_this_kind(tool: Tool) -> None:
    tool("set", "--topic", "t", "request_percentage=5", code=1)
    assert tool.err.endswith("is no limit of topic; its limits: consumer_byte_rate, producer_byte_rate\n")


CAPACITY = """
[[capacity]]
scope = "cluster"
in = "80M"  # all brokers

[[group]]
name = "web"
client_ids = ["web-*"]

[[quota]]
group = "web"
producer_byte_rate = "10M"
producer_byte_rate_ceiling = "40M"
weight = 2

[[quota]]
client_id = "a"
producer_byte_rate = 2000
until = 2000-01-01T00:00:00Z
"""


def test_groups_capacities_and_times_are_shown(tool: Tool) -> None:
    tool("apply", tool.file(CAPACITY))
    assert tool("show", "--group", "web").splitlines() == [
        "client id 'web-*', group 'web': member=true",
        "group 'web': producer_byte_rate=10000000 producer_byte_rate_ceiling=40000000 weight=2.0",
    ]
    assert tool("show", "--capacity", "cluster") == "capacity 'cluster': producer_byte_rate=80000000\n"
    assert tool("show", "--client-id", "a").splitlines() == [
        "client id 'a': producer_byte_rate=1000",
        "client id 'a', when 'until=2000-01-01T00:00:00Z': producer_byte_rate=2000 (over)",
    ]


def test_show_says_what_holds_now_and_what_comes_next(tool: Tool) -> None:
    for times in ("from=2000-01-01T00:00:00Z; until=2900-01-01T00:00:00Z", "from=2900-01-01T00:00:00Z"):
        tool("set", "--user", "u", "--when", times, "exempt=true")
    tool("set", "--user", "v", "--when", "from=2000-01-01T00:00:00Z", "exempt=true")
    tool("set", "--user", "w", "--when", "hours=mon-sun", "exempt=true")
    tool("set", "--user", "x", "--when", "hours=mon-sun; until=2900-01-01T00:00:00Z", "exempt=true")
    assert [line.partition("exempt=true ")[2] for line in tool("show", "--when", "*").splitlines()] == [
        "(holds now, until 2900-01-01 00:00 UTC)",
        "(next from 2900-01-01 00:00 UTC)",
        "(holds now)",
        "(holds now)",
        "(holds now, until 2900-01-01 00:00 UTC)",
    ]


def test_member_joins_and_leaves_a_group_alone(tool: Tool) -> None:
    tool("apply", tool.file(CAPACITY))
    added = tool("set", "--group", "web", "--client-id", "front", "member=true")
    assert added == "+ client id 'front', group 'web': member true\n"
    assert 'client_ids = ["web-*", "front"]' in tool.server.path.read_text()
    tool("remove", "--group", "web", "--client-id", "web-*")
    assert 'client_ids = ["front"]' in tool.server.path.read_text()
    assert "'web-1'" in tool("set", "--group", "web", "--user", "'web-1'", "member=true")


@pytest.mark.parametrize("form", ["toml", "json"])
def test_export_has_all_that_apply_takes(tool: Tool, tmp_path: Path, form: str) -> None:
    tool("apply", tool.file(CAPACITY), "--prune")
    exported = tmp_path / f"exported.{form}"
    exported.write_text(tool("export", "--format", form))
    assert tool("diff", exported, "--prune") == "nothing to change\n"
    tool("apply", tool.file(""), "--prune")
    assert tool("show") == ""
    tool("apply", exported)
    assert tool("diff", tool.file(CAPACITY), "--prune") == "nothing to change\n"


def test_explain_has_groups_in_their_place_and_who_is_promised_nothing(tool: Tool) -> None:
    tool("apply", tool.file(CAPACITY))
    tool("set", "--client-id", "<default>", "producer_byte_rate=5k")
    tool("set", "--user", "ops", "exempt=true")
    said = tool("explain", "--user", "ann", "--client-id", "web-1").splitlines()
    assert said[0] == "producer_byte_rate: 10000000"
    applies = "applies: the highest precedence of those that have a limit"
    assert said[6] == f"  6  group 'web': 10000000  {applies}"
    assert said[9] == "  9  client-id <default>: 5000  has a lower precedence"
    first, *entities = tool("explain", "--user", "ops", "--client-id", "x").splitlines()
    assert first == "producer_byte_rate: nothing is promised"
    assert entities[2] == "  3  user 'ops': –  applies: it has a ceiling or is exempt, and no limit"


def test_jikkou_has_no_groups_and_the_export_says_so(tool: Tool) -> None:
    tool("apply", tool.file(CAPACITY))
    tool("export", "--format", "jikkou")
    assert "group 'web' is left out: jikkou has no such quota type" in tool.err
    assert "capacity 'cluster' is left out: jikkou has no such quota type" in tool.err


JIKKOU = """
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaClientQuota
spec:
  type: USER
  entity: {user: ann}
  configs: {producerByteRate: 7}
"""


def test_file_in_jikkous_format_removes_nothing_that_it_cannot_express(tool: Tool) -> None:
    """A file that says nothing of a ceiling, and cannot, is no wish that there be none."""
    tool(
        "set", "--user", "ann", "producer_byte_rate=5", "producer_byte_rate_ceiling=9", "request_percentage=3"
    )
    tool("set", "--user", "ann", "--when", "hours=sat", "producer_byte_rate=8")
    tool("set", "--capacity", "cluster", "producer_byte_rate=100")
    printed = tool("apply", tool.file(JIKKOU), "--prune", "--file-format", "jikkou")
    assert "- user 'ann': request_percentage 3.0" in printed.splitlines()
    assert "ceiling" not in printed
    assert "capacity" not in printed
    assert tool("show", "--user", "ann").splitlines()[0] == (
        "user 'ann': producer_byte_rate=7 producer_byte_rate_ceiling=9"
    )
    assert "when 'hours=sat'" in tool("show", "--user", "ann")
    assert tool("show", "--capacity", "cluster") == "capacity 'cluster': producer_byte_rate=100\n"
    tool("diff", tool.file(JIKKOU), "--prune", "--file-format", "jikkou")
    named = tool.file(JIKKOU.replace("7}", "7, producer_byte_rate_ceiling: 8}"))
    assert "producer_byte_rate_ceiling 9 -> 8" in tool("apply", named, "--file-format", "jikkou")


def test_rate_that_kafkas_tool_removes_leaves_ceiling_and_weight(tool: Tool) -> None:
    """An AlterClientQuotas that names Kafka's key alone, as kafka-configs sends it."""
    tool("set", "--user", "ann", "producer_byte_rate=5", "producer_byte_rate_ceiling=9", "weight=2")
    tool.server.store.alter([([("user", "ann")], [("producer_byte_rate", None)])], validate_only=False)
    assert (
        tool("show", "--user", "ann", "--strict") == "user 'ann': producer_byte_rate_ceiling=9 weight=2.0\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--group g --client-id a*b member=true", "* may only stand at the end"),
        ("--user u --when hours=never weight=2", "--when"),
        ("--capacity rack producer_byte_rate=5", "must be one of"),
        ("--capacity broker --user u producer_byte_rate=5", "--capacity cannot be combined with --user"),
        ("--when hours=sat weight=2", "name an entity"),
    ],
)
def test_wrong_group_capacity_or_time_is_a_usage_error(tool: Tool, words: str, said: str) -> None:
    tool("set", *words.split(), code=2)
    assert said in tool.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--group g --client-id a weight=2", "is no limit of client_id and group; its limits: member"),
        ("--user u exempt=false", "must be true"),
        (
            "--user u producer_byte_rate=5000 producer_byte_rate_ceiling=4000",
            "must be at least producer_byte_rate",
        ),
    ],
)
def test_wrong_term_is_refused(tool: Tool, words: str, said: str) -> None:
    before = tool.server.path.read_text()
    tool("set", *words.split(), code=1)
    assert said in tool.err
    assert tool.server.path.read_text() == before
