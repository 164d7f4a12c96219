"""Files, environment and tables -> Config: what overrides what, defaults, unknown keys, and what a file must be."""

from pathlib import Path
from typing import Any

import pytest

from proxy.config import Address, QuotaSettings, load, read_text, reload
from proxy.config.parser import key_path, merge, override, steps, variables
from proxy.system.errors import ConfigError
from quotas.definitions.toml_file import TABLES
from tests.support.configurations import BASE, parsed, refused

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\n'
REPLICATES = SMALL + 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'


def test_the_smallest_file_takes_every_default() -> None:
    config = parsed(SMALL)
    listener = config.listeners[0]
    assert config.cluster.bootstrap == (Address("127.0.0.1", 9092),)
    assert (listener.name, listener.bind, listener.advertised_host) == ("clients", "127.0.0.1", "127.0.0.1")
    assert (listener.bootstrap_port, listener.first_broker_port, listener.broker_id_max) == (19090, 19100, 63)
    assert (listener.advertised_bootstrap_port, listener.advertised_first_broker_port) == (19090, 19100)
    assert not listener.sidecar
    assert config.quotas == QuotaSettings(scope="cluster")  # it is a gateway
    assert config.limits.frame_bytes_max == 100 * 1024 * 1024
    assert config.admin.bind == Address("127.0.0.1", 19080)
    assert config.warnings == ()


def test_paths_are_relative_to_the_file() -> None:
    config = parsed(SMALL + '[quotas]\nfile = "q.toml"\n[state]\ndirectory = "/var/lib/sluice"')
    assert config.quotas.file == BASE / "q.toml"
    assert config.state.directory == Path("/var/lib/sluice")


def test_broker_ports_and_advertised_addresses() -> None:
    listener = parsed(SMALL + "broker_id_max = 2\nadvertised_first_broker_port = 30000").listeners[0]
    assert (listener.broker_ids, listener.broker_port(2)) == ((0, 1, 2), 19102)
    shown = [listener.advertised_broker(broker) for broker in (-1, 2, 3)]
    assert shown == [None, Address("127.0.0.1", 30002), None]


def test_sidecar_needs_no_bootstrap_and_binds_its_brokers_only() -> None:
    config = parsed('[[listeners]]\nbind = "0.0.0.0"\nupstreams = { 7 = "127.0.0.1:29391", 2 = "b:1" }')
    assert config.listeners[0].sidecar
    assert config.listeners[0].broker_ids == (2, 7)
    assert config.cluster.bootstrap == (Address("b", 1), Address("127.0.0.1", 29391))


@pytest.mark.parametrize(
    ("policy", "hold", "meant"),
    [("kip13", "", 0.0), ("schedule", "", 15.0), ("schedule", "hold_seconds_max = 3", 3.0),
     ("schedule", "hold_seconds_max = 0", 0.0), ("kip13", "hold_seconds_max = 3", 0.0)],
)  # fmt: skip
def test_only_schedule_holds_requests(policy: str, hold: str, meant: float) -> None:
    config = parsed(SMALL + f'[quotas]\npolicy = "{policy}"\n{hold}')
    assert config.quotas.hold_seconds_max == meant
    warned = any("hold_seconds_max" in warning for warning in config.warnings)
    assert warned == (policy == "kip13" and hold != "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "[limits]\nx = [1]\n", "limits.x: unknown key; known keys: connections_max, "),
        (SMALL + "[[zzz]]\nmode = 1\n", "zzz: unknown table; known tables: cluster, listeners, quotas, "),
        ("cluster = 1\n[[listeners]]", "cluster: must be a table: [cluster] (got 1)"),
        ("", "listeners: there must be at least one: [[listeners]]"),
        ("[[listeners]]", "cluster.bootstrap: must name one or more brokers, as host:port"),
        (SMALL + "[[listeners]]\n" * 64, "listeners: there may be at most 64 (got 65)"),
    ],
)
def test_wrong_file_is_refused_with_key_and_value(text: str, message: str) -> None:
    assert refused(text).startswith(message)  # `said.md` has more


@pytest.mark.parametrize("table", TABLES)
def test_table_of_a_quotas_file_in_the_configuration_is_recognized(table: str) -> None:
    assert refused(f"{SMALL}[[{table}]]\n") == (
        f"{table}: this is a table of a quotas file: the configuration names that file with `file` under [quotas], "
        "and a command with --quotas-file"
    )


def test_error_names_the_variable_that_set_the_value() -> None:
    environ = {"SLUICE_ADMIN__BIND": "nowhere"}
    with pytest.raises(ConfigError, match=r"^admin\.bind \(from SLUICE_ADMIN__BIND\): .* \(got 'nowhere'\)$"):
        parsed(SMALL, environ=environ)


def test_replication_listener_binds_no_bootstrap_port() -> None:
    text = SMALL + 'kind = "replication"\nbootstrap_port = 19101\nupstreams = { 1 = "127.0.0.1:29391" }'
    (listener,) = parsed(text).listeners
    assert listener.replicates
    assert listener.sidecar


@pytest.mark.parametrize(
    ("keys", "mode", "said"),
    [
        ('file = "q.toml"', "observe", 'quotas.file: has no effect with store = "cluster"'),
        ('mode = "enforce"', "enforce", "quotas.mode: clients are throttled twice"),
        ('mode = "observe"', "observe", ""),
    ],
)
def test_brokers_own_quotas_are_observed_and_need_no_file(keys: str, mode: str, said: str) -> None:
    config = parsed(f'{SMALL}[quotas]\nstore = "cluster"\n{keys}')
    assert (config.quotas.mode, config.quotas.file) == (mode, None)
    assert [warning[: len(said)] for warning in config.warnings] == [said] * bool(said)


def test_malformed_replica_list_is_a_warning_and_the_rest_holds() -> None:
    text = '[replication]\nthrottled = "file"\nleader_throttled_replicas = { a = "0:1,0-2" }\n'
    config = parsed(REPLICATES + text)
    (warning,) = config.warnings
    expected = "replication.leader_throttled_replicas.a: entry 2, '0-2': not [partition]:[replica]; did you mean '0:2'?"
    assert warning == expected + "; the rest of the list is used"
    leaders, _ = config.replication.lists()
    assert leaders["a"].holds(0, 1)


# Files


def test_file_environment_and_arguments(tmp_path: Path) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(SMALL + '[quotas]\nfile = "q.toml"\nmode = "enforce"\nscope = "broker"\npolicy = "kip13"')
    environ = {"SLUICE_QUOTAS__MODE": "observe", "SLUICE_QUOTAS__SCOPE": "cluster"}
    config = load(path, {**environ, "HOME": "/"}, {"quotas": {"scope": "broker"}}, "text")
    assert config.quotas.file == tmp_path / "q.toml"
    assert (config.quotas.policy, config.quotas.mode, config.quotas.scope) == ("kip13", "observe", "broker")
    assert (config.source.environ, config.source.quota_text) == (environ, "text")


def test_no_file_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = {"cluster": {"bootstrap": "a:1"}, "listeners": [{"name": "n"}], "quotas": {"file": "q.toml"}}
    config = load(None, {}, overrides)
    assert config.listeners[0].name == "n"
    assert (config.quotas.file, config.source.path) == (tmp_path / "q.toml", None)
    assert (config.quotas.policy, config.quotas.hold_seconds_max, config.warnings) == ("schedule", 15.0, ())


def test_reload_reads_the_same_sources_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sluice.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    config = load(Path("sluice.toml"), {"SLUICE_LOG__LEVEL": "error"})
    monkeypatch.chdir("/")
    (tmp_path / "sluice.toml").write_text(SMALL + '[quotas]\nmode = "observe"')
    again = reload(config.source)
    assert (again.quotas.mode, again.log.level) == ("observe", "error")


OPEN = "quotas.policy: is not"
QUOTA = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 2000000\n'


@pytest.mark.parametrize(
    ("text", "more", "warned"),
    [
        (SMALL + '[quotas]\nfile = "q.toml"', (), True),
        (SMALL + '[quotas]\nmode = "observe"', (), True),
        (SMALL + '[quotas]\nstore = "cluster"', (), True),
        (SMALL, ({}, {}, QUOTA), True),  # of the command line
        (SMALL + '[quotas]\npolicy = "schedule"', (), False),
        (SMALL + '[quotas]\npolicy = "kip13"', (), False),
        (SMALL + '[quotas]\nfile = "q.toml"', ({"SLUICE_QUOTAS__POLICY": "kip13"},), False),
        (SMALL + '[quotas]\nfile = "q.toml"', ({}, {"quotas": {"policy": "kip13"}}), False),
        (SMALL, (), False),  # nothing has a quota
        (REPLICATES + '[quotas]\nmode = "observe"', (), False),  # no client
    ],
)
def test_file_that_leaves_the_policy_open_is_warned_of(
    tmp_path: Path, text: str, more: tuple[Any, ...], warned: bool
) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(text)
    found = [text for text in load(path, *(more or ({},))).warnings if text.startswith(OPEN)]
    assert len(found) == warned
    assert all('Write policy = "schedule"' in text and 'or policy = "kip13"' in text for text in found)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = ", "is not TOML: Invalid value (at end of document)"),
        (b"\xff\xfe", "is not UTF-8: byte 0"),
        (b"[cluster]\n[cluster]\n", "is not TOML: Cannot declare"),
    ],
)
def test_file_that_is_no_configuration(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "sluice.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value).startswith(f"{path}: {problem}")


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load(tmp_path, {})


def test_file_too_large(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 11)
    with pytest.raises(ConfigError, match="is larger than 10 bytes"):
        read_text(tmp_path / "f", 10)
    (tmp_path / "f").write_text("x" * 10)
    assert read_text(tmp_path / "f", 10) == "x" * 10


# The environment


def test_only_variables_with_two_underscores_are_ours() -> None:
    of_kubernetes = ("SLUICE_PORT", "SLUICE_SERVICE_HOST")  # for a Service named sluice
    environ = dict.fromkeys(("SLUICE_ADMIN__BIND", *of_kubernetes, "PATH", "OTHER__KEY"), "a:1")
    assert variables(environ) == {"SLUICE_ADMIN__BIND": "a:1"}


def test_override_sets_a_value_and_names_its_variable() -> None:
    tables: dict[str, object] = {"admin": {"bind": "old"}, "listeners": [{"bind": "old", "name": "n"}]}
    changed, origins = override(tables, {"SLUICE_LISTENERS__0__BIND": "new", "SLUICE_LOG__LEVEL": "debug"})
    assert changed == {
        "admin": {"bind": "old"},
        "listeners": [{"bind": "new", "name": "n"}],
        "log": {"level": "debug"},
    }
    assert origins == {"listeners[0].bind": "SLUICE_LISTENERS__0__BIND", "log.level": "SLUICE_LOG__LEVEL"}
    assert tables["listeners"] == [{"bind": "old", "name": "n"}]  # as it was given
    assert key_path(steps("SLUICE_LISTENERS__0__UPSTREAMS__1")) == "listeners[0].upstreams.1"


def test_listeners_can_be_made_from_nothing_in_their_order() -> None:
    environ = {
        f"SLUICE_LISTENERS__{index}__NAME": f"n{index}" for index in (10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3)
    }
    changed, _ = override({}, environ)
    assert changed["listeners"] == [{"name": f"n{index}"} for index in range(11)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SLUICE_ADMIN__", "is not the name of a key"),
        ("SLUICE___BIND", "is not the name of a key"),
        ("SLUICE_LISTENERS__1__BIND", "'1' is not the number of a listener; the next new one is 0"),
        ("SLUICE_LISTENERS__X__BIND", "'x' is not the number of a listener"),
        ("SLUICE_LISTENERS__0", "listeners is not a table that could hold '0'"),
        ("SLUICE_LOG__LEVEL__DEEPER", "log.level is not a table that could hold 'deeper'"),
        ("SLUICE_LOG__LEVEL__DEEPER__STILL", "log.level is not a table"),
    ],
)
def test_variable_that_names_no_key_is_refused_by_its_name(name: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override({"log": {"level": "info"}}, {name: "text"})
    assert str(caught.value).startswith(f"{name}: {problem}")
    assert "(got 'text')" in str(caught.value)


def test_merge_replaces_lists_and_values_and_merges_tables() -> None:
    below = {"a": {"x": 1, "y": 2}, "l": [1, 2], "v": 1}
    assert merge(below, {"a": {"y": 3}, "l": [9], "v": {"w": 1}}) == {
        "a": {"x": 1, "y": 3},
        "l": [9],
        "v": {"w": 1},
    }
    assert below == {"a": {"x": 1, "y": 2}, "l": [1, 2], "v": 1}


def test_password_in_a_table_that_is_a_list_is_not_shown() -> None:
    assert refused('[[cluster]]\npassword = "hunter2"') == "cluster: must be a table: [cluster]"
