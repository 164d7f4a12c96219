"""Reading the configuration file from disk."""

from pathlib import Path

import pytest

from proxy.config import load, read_text, reload
from proxy.system.errors import ConfigError

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\n'


def test_file_environment_and_arguments(tmp_path: Path) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(SMALL + '[quotas]\nfile = "q.toml"\nmode = "enforce"')
    config = load(path, {"SLUICE_QUOTAS__MODE": "observe", "HOME": "/"}, {"log": {"level": "debug"}}, "text")
    assert config.quotas.file == tmp_path / "q.toml"
    assert (config.quotas.mode, config.log.level) == ("observe", "debug")
    assert config.source.environ == {"SLUICE_QUOTAS__MODE": "observe"}
    assert config.source.quota_text == "text"


def test_no_file_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = {"cluster": {"bootstrap": "a:1"}, "listeners": [{"name": "n"}], "quotas": {"file": "q.toml"}}
    config = load(None, {}, overrides)
    assert config.listeners[0].name == "n"
    assert config.quotas.file == tmp_path / "q.toml"
    assert config.source.path is None


def test_reload_reads_the_same_sources_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sluice.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    config = load(Path("sluice.toml"), {"SLUICE_LOG__LEVEL": "error"})
    monkeypatch.chdir("/")
    (tmp_path / "sluice.toml").write_text(SMALL + '[quotas]\nmode = "observe"')
    again = reload(config.source)
    assert (again.quotas.mode, again.log.level) == ("observe", "error")


@pytest.mark.parametrize(
    ("quotas", "environ", "overrides", "warned"),
    [
        ('file = "q.toml"', {}, {}, True),
        ('mode = "observe"', {}, {}, True),
        ('store = "cluster"', {}, {}, True),
        ('policy = "schedule"', {}, {}, False),
        ('policy = "kip13"', {}, {}, False),
        ('file = "q.toml"', {"SLUICE_QUOTAS__POLICY": "kip13"}, {}, False),
        ('file = "q.toml"', {}, {"quotas": {"policy": "kip13"}}, False),
        ("", {}, {}, False),  # nothing has a quota
    ],
)
def test_file_that_leaves_the_policy_open_is_warned_of(
    tmp_path: Path,
    quotas: str,
    environ: dict[str, str],
    overrides: dict[str, dict[str, str]],
    warned: bool,
) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(f"{SMALL}[quotas]\n{quotas}\n")
    found = [
        text for text in load(path, environ, overrides).warnings if text.startswith("quotas.policy: is not")
    ]
    assert len(found) == warned
    for text in found:
        assert 'Write policy = "schedule"' in text
        assert 'or policy = "kip13"' in text


def test_quota_of_the_command_line_with_a_file_that_leaves_the_policy_open_is_warned_of(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(SMALL)
    quota = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 2000000\n'
    assert [text.partition(":")[0] for text in load(path, {}, {}, quota).warnings] == ["quotas.policy"]


def test_command_line_without_a_file_is_not_warned_of_the_policy() -> None:
    overrides = {"cluster": {"bootstrap": "a:1"}, "listeners": [{"name": "n"}], "quotas": {"file": "q.toml"}}
    config = load(None, {}, overrides)
    assert (config.quotas.policy, config.quotas.hold_seconds_max, config.warnings) == ("schedule", 15.0, ())


def test_replication_alone_has_no_policy_of_quotas(tmp_path: Path) -> None:
    path = tmp_path / "sluice.toml"
    listener = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
    path.write_text(f'{SMALL}{listener}[quotas]\nmode = "observe"\n')
    assert load(path, {}).warnings == ()


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
