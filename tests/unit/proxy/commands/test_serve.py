"""Arguments -> tables and quotas text."""

import argparse
from pathlib import Path

import pytest

from proxy.commands.serve import QUOTAS_MAX, quota_text, tables
from proxy.config import Address, Config
from proxy.system.errors import ConfigError
from quotas.definitions.toml_file import parse
from quotas.errors import DefinitionError
from tests.support.command_line import Sluice

NONE: dict[str, object] = dict.fromkeys(
    (
        *("bootstrap_server", "policy", "mode", "scope", "workers", "admin", "log_level", "log_format"),
        *("listen", "advertised_host", "quotas_file"),
    )
)


def given(**arguments: object) -> dict[str, object]:
    return tables(argparse.Namespace(**{**NONE, **arguments}))


def test_every_argument_sets_its_key() -> None:
    assert given() == {}
    assert given(
        bootstrap_server="a:1,b:2",
        policy="schedule",
        mode="observe",
        scope="cluster",
        workers="2",
        admin="",
        log_level="debug",
        log_format="json",
        quotas_file=Path("q.toml"),  # relative to where the command runs
    ) == {
        "cluster": {"bootstrap": "a:1,b:2"},
        "quotas": {
            "policy": "schedule",
            "mode": "observe",
            "scope": "cluster",
            "file": str(Path.cwd() / "q.toml"),
        },
        "process": {"workers": "2"},
        "admin": {"bind": ""},
        "log": {"level": "debug", "format": "json"},
    }


def test_listen_is_one_listener_with_brokers_right_after_it() -> None:
    assert given(listen="0.0.0.0:9000", advertised_host="h") == {
        "listeners": [
            {"bind": "0.0.0.0", "bootstrap_port": 9000, "first_broker_port": 9001, "advertised_host": "h"}
        ]
    }


@pytest.mark.parametrize("amount", ["-1", "-0.5"])
def test_negative_quota_is_refused_as_that(amount: str) -> None:
    with pytest.raises(DefinitionError, match=rf"must be greater than 0, not {float(amount)}; without"):
        parse(quota_text([f"client-id=a,consumer_byte_rate={amount}"]))


def test_wrong_listen_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--listen: must be host:port"):
        given(listen="9000")


@pytest.mark.parametrize(
    ("text", "client_id", "rates"),
    [
        ("client-id=a,producer_byte_rate=2000000", "a", (2_000_000, None)),
        ("client_id=a,producer_byte_rate=2M,consumer_byte_rate=1.5k", "a", (2_000_000, 1500)),
        ("client-id=<default>,consumer_byte_rate=5", "x", (None, 5)),
        ('client-id=q"\\\t\x7fü=x,producer_byte_rate=5', 'q"\\\t\x7fü=x', (5, None)),
        ("client-id=5,producer_byte_rate=5", "5", (5, None)),
    ],
)
def test_quota_argument_defines(text: str, client_id: str, rates: tuple[float | None, float | None]) -> None:
    definitions = parse(quota_text([text]))
    assert (
        definitions.limit("producer_byte_rate", "", client_id)[0],
        definitions.limit("consumer_byte_rate", "", client_id)[0],
    ) == rates


def test_several_quota_arguments() -> None:
    text = quota_text(["client-id=a,producer_byte_rate=1", "user=u,consumer_byte_rate=2"])
    assert [tuple(entity) for entity, _ in parse(text).entries()] == [
        (None, "a", None, None, None, None, None),
        ("u", None, None, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("client-id", "'client-id' is not name=value"),
        ("", "'' is not name=value"),
        ("client-id=a,=5", "'=5' is not name=value"),
        ("client-id=a,client-id=b", "client-id is given twice"),
        ("a]b=5", "'a]b=5' is not name=value"),
    ],
)
def test_wrong_quota_argument_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        quota_text([text])
    assert str(caught.value).startswith(f"--quota: {problem}")


def test_quota_arguments_are_bounded() -> None:
    with pytest.raises(ConfigError, match="a quotas file takes more"):
        quota_text(["client-id=a,producer_byte_rate=1"] * (QUOTAS_MAX + 1))


LISTENING = ("serve", "--bootstrap-server", "b:9092", "--listen", "127.0.0.1:9000")


def test_arguments_alone_are_enough(served: list[Config], sluice: Sluice) -> None:
    sluice(*LISTENING, "--policy", "schedule", "--quota", "client-id=a,producer_byte_rate=2000000")
    (config,) = served
    listener = config.listeners[0]
    assert config.cluster.bootstrap == (Address("b", 9092),)
    assert (listener.bootstrap_port, listener.broker_port(1)) == (9000, 9002)
    assert config.quotas.policy == "schedule"
    assert "producer_byte_rate = 2000000" in config.source.quota_text


def test_arguments_beat_the_file(served: list[Config], tmp_path: Path, sluice: Sluice) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text('[cluster]\nbootstrap = "a:1"\n[[listeners]]\nname = "n"\n[quotas]\nmode = "enforce"\n')
    sluice("serve", "--config", path, "--mode", "observe")
    assert (served[0].quotas.mode, served[0].listeners[0].name) == ("observe", "n")


def test_environment_alone_is_enough(
    served: list[Config], monkeypatch: pytest.MonkeyPatch, sluice: Sluice
) -> None:
    environ = {"SLUICE_CLUSTER__BOOTSTRAP": "a:1", "SLUICE_LISTENERS__0__BROKER_ID_MAX": "5"}
    monkeypatch.setattr("os.environ", environ)
    sluice("serve")
    assert served[0].listeners[0].broker_id_max == 5


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "serve needs --config, or --bootstrap-server and --listen; see sluice serve --help\n"),
        (
            "--config x --advertised-host h",
            "--advertised-host needs --listen; with --config, set the key advertised_host; see sluice serve --help\n",
        ),
    ],
)
def test_nothing_to_serve_is_a_usage_error(
    served: list[Config], sluice: Sluice, words: str, line: str
) -> None:
    sluice("serve", *words.split(), code=2)
    assert sluice.err == f"sluice: {line}"
    assert served == []


def test_warnings_are_logged(served: list[Config], tmp_path: Path, sluice: Sluice) -> None:
    sluice("serve", "--bootstrap-server", "b:1", "--listen", "127.0.0.1:40000")
    assert "ephemeral range" in sluice.err
    (tmp_path / "file").touch()
    path = tmp_path / "sluice.toml"
    path.write_text('[cluster]\nbootstrap = "a:1"\n[[listeners]]\n[state]\ndirectory = "file/state"\n')
    sluice("serve", "--config", path)
    assert "state.directory: " in sluice.err
    assert len(served) == 2


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("--policy", ["schedule", "kip13"]),
        ("--mode", ["enforce", "observe"]),
        ("--scope", ["broker", "cluster"]),
        ("--log-level", ["debug", "info", "warning", "error"]),
        ("--log-format", ["text", "json"]),
    ],
)
def test_value_that_is_no_choice_is_a_usage_error_with_the_choices(
    served: list[Config], sluice: Sluice, option: str, choices: list[str]
) -> None:
    sluice(*LISTENING, option, "other", code=2)
    shown = sluice.err.splitlines()[-1]
    assert shown.startswith(f"sluice serve: error: argument {option}: invalid choice: 'other' (choose from ")
    assert [choice for choice in choices if choice in shown] == choices
    assert served == []
    for choice in choices:
        sluice(*LISTENING, option, choice)


def test_old_scope_is_read_with_a_warning(served: list[Config], sluice: Sluice) -> None:
    sluice(*LISTENING, "--scope", "gateway")
    assert served[0].quotas.scope == "cluster"
    warning = "sluice serve: warning: --scope gateway is an old spelling: use --scope cluster"
    assert warning in sluice.err.splitlines()


def test_wrong_value_is_refused(served: list[Config], sluice: Sluice) -> None:
    sluice(*LISTENING, "--workers", "many", code=1)
    assert sluice.err.startswith("sluice: process.workers: ")
    assert served == []
