"""`sluice serve`: what it makes of its arguments; the application itself stands in."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from proxy import cli
from proxy.config import Address, Config


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Config]]:
    """Give the configurations that would have run."""
    configs: list[Config] = []
    stand_in = ModuleType("proxy.app")

    def run(config: Config) -> int:
        configs.append(config)
        return 0

    stand_in.run = run  # type: ignore[attr-defined]  # a module of our own making
    monkeypatch.setitem(sys.modules, "proxy.app", stand_in)
    monkeypatch.setattr("os.environ", {})
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield configs
    root.handlers[:] = handlers
    root.setLevel(level)


def test_arguments_alone_are_enough(served: list[Config]) -> None:
    arguments = ["--bootstrap-server", "b:9092", "--listen", "127.0.0.1:9000", "--policy", "schedule"]
    assert cli.main(["serve", *arguments, "--quota", "client-id=a,producer_byte_rate=2000000"]) == 0
    (config,) = served
    listener = config.listeners[0]
    assert config.cluster.bootstrap == (Address("b", 9092),)
    assert (listener.bootstrap_port, listener.broker_port(1)) == (9000, 9002)
    assert config.quotas.policy == "schedule"
    assert "producer_byte_rate = 2000000" in config.source.quota_text


def test_arguments_beat_the_file(served: list[Config], tmp_path: Path) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text('[cluster]\nbootstrap = "a:1"\n[[listeners]]\nname = "n"\n[quotas]\nmode = "enforce"\n')
    assert cli.main(["serve", "--config", str(path), "--mode", "observe"]) == 0
    assert (served[0].quotas.mode, served[0].listeners[0].name) == ("observe", "n")


def test_environment_alone_is_enough(served: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"SLUICE_CLUSTER__BOOTSTRAP": "a:1", "SLUICE_LISTENERS__0__BROKER_ID_MAX": "5"}
    monkeypatch.setattr("os.environ", environ)
    assert cli.main(["serve"]) == 0
    assert served[0].listeners[0].broker_id_max == 5


def test_nothing_to_serve_is_a_usage_error(served: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve"]) == 2
    assert cli.main(["serve", "--config", "x", "--advertised-host", "h"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert (
        first == "sluice: serve needs --config, or --bootstrap-server and --listen; see sluice serve --help"
    )
    assert second.startswith("sluice: --advertised-host needs --listen; with --config, set the key")
    assert served == []


def test_warnings_are_logged(served: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--bootstrap-server", "b:1", "--listen", "127.0.0.1:40000"]) == 0
    assert "ephemeral range" in capsys.readouterr().err


def test_state_directory_that_can_not_be_written_is_logged(
    served: list[Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "sluice.toml"
    path.write_text('[cluster]\nbootstrap = "a:1"\n[[listeners]]\n[state]\ndirectory = "file/state"\n')
    assert cli.main(["serve", "--config", str(path)]) == 0
    assert "state.directory: " in capsys.readouterr().err


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
    served: list[Config], capsys: pytest.CaptureFixture[str], option: str, choices: list[str]
) -> None:
    arguments = ["serve", "--bootstrap-server", "b:1", "--listen", "127.0.0.1:9000"]
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, option, "other"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err.splitlines()[-1]
    assert shown.startswith(f"sluice serve: error: argument {option}: invalid choice: 'other' (choose from ")
    assert [choice for choice in choices if choice in shown] == choices
    assert served == []
    assert [cli.main([*arguments, option, choice]) for choice in choices] == [0] * len(choices)


def test_old_scope_is_read_with_a_warning(served: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["serve", "--bootstrap-server", "b:1", "--listen", "127.0.0.1:9000", "--scope", "gateway"]
    assert cli.main(arguments) == 0
    assert served[0].quotas.scope == "cluster"
    warning = "sluice serve: warning: --scope gateway is an old spelling: use --scope cluster"
    assert warning in capsys.readouterr().err.splitlines()


def test_wrong_value_is_refused(served: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["serve", "--bootstrap-server", "b:1", "--listen", "127.0.0.1:9000"]
    assert cli.main([*arguments, "--workers", "many"]) == 1
    assert capsys.readouterr().err.startswith("sluice: process.workers: ")
    assert served == []
