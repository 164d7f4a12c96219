"""What several keys must agree on."""

import os
from itertools import product
from pathlib import Path

import pytest

from proxy.config import Config, unwritable
from proxy.config.checks import shared_name
from tests.support.configurations import parsed

CLUSTER = '[cluster]\nbootstrap = "10.0.0.9:9092"\n'


def made(text: str) -> Config:
    return parsed(CLUSTER + text)


@pytest.mark.parametrize(
    ("listener", "cluster", "trusted"),
    [
        ('bind = "127.0.0.1"', "", True),
        ('bind = "10.0.0.9"', "", False),
        # A balancer on this machine takes connections from everywhere.
        ('bind = "127.0.0.1"\nproxy_protocol = true\nproxy_protocol_sources = "127.0.0.1"', "", False),
        (
            'bind = "127.0.0.1"',
            'sasl_mechanism = "PLAIN"\nusername = "sluice"\npassword_file = "/etc/hostname"\n',
            False,
        ),
    ],
)
def test_only_local_clients_may_alter_quotas_unauthenticated(
    listener: str, cluster: str, trusted: bool
) -> None:
    config = made(f"{cluster}[[listeners]]\n{listener}")
    assert config.trusts(config.listeners[0]) == trusted


SASL = 'sasl_mechanism = "PLAIN"\nusername = "sluice"\n'


def test_password_of_the_environment_is_never_shown() -> None:
    environ = {"SLUICE_CLUSTER__PASSWORD": "very-secret"}
    config = parsed(CLUSTER + SASL + "[[listeners]]", environ=environ)
    assert config.cluster.password == "very-secret"
    assert config.warnings == ()
    assert "very-secret" not in repr((config, config.cluster, config.source))


def test_sidecar_keeps_its_identity() -> None:
    text = "[cluster]\n" + SASL + 'password = "x"\n[[listeners]]\nupstreams = { 1 = "10.0.0.9:9092" }'
    config = parsed(text)
    assert (config.cluster.sasl_mechanism, len(config.cluster.bootstrap)) == ("PLAIN", 1)


SMALL = '[cluster]\nbootstrap = "10.0.0.9:9092"\n[[listeners]]\n'


def found(base: Path, text: str) -> list[str]:
    return list(unwritable(parsed(SMALL + text, base)))


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A file where a directory should be."""
    path = tmp_path / "file"
    path.touch()
    return path


def test_directories_that_can_be_made_are_right(tmp_path: Path) -> None:
    text = '[quotas]\nfile = "q.toml"\n[state]\ndirectory = "new/state"\n[capture]\ndirectory = "capture"\n'
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[state]\ndirectory = "file/state"', "state.directory"),
        ('[capture]\ndirectory = "file/capture"', "capture.directory"),
        ('[reassignment]\nmode = "batch"\njournal = "file/journal"', "reassignment.journal"),
        ('[quotas]\nfile = "file/q.toml"', "quotas.file"),
    ],
)
def test_directory_that_can_not_be_made_is_named(blocked: Path, text: str, key: str) -> None:
    (warning,) = found(blocked.parent, text)
    assert warning.startswith(f"{key}: {blocked} is no directory: ")


def test_directory_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    (warning,) = found(tmp_path, '[state]\ndirectory = "state"')
    assert warning.startswith(f"state.directory: {tmp_path} cannot be written by user id {os.geteuid()}: ")


def test_read_only_quotas_file_is_right_where_no_user_may_alter(blocked: Path) -> None:
    text = 'bind = "0.0.0.0"\nadvertised_host = "h"\n[quotas]\nfile = "file/q.toml"\n'
    assert found(blocked.parent, text) == []
    assert len(found(blocked.parent, text + 'alter_principals = ["ops"]\n')) == 1
    fleet = '[fleet]\nholder = "gw-1:19070"\n'
    assert found(blocked.parent, text + 'alter_principals = ["ops"]\n' + fleet) == []


def test_hosts_of_brokers_share_a_name_exactly_where_their_names_do() -> None:
    # With parts this short, hosts that share names share one with ids below 1000.
    parts = ("", "0", "1", "2", "a", "1a", "a1")
    names = {
        f"{start}{{id}}{end}": {f"{start}{broker}{end}" for broker in range(1000)}
        for start, end in product(parts, parts)
    }
    for one, other in product(names, names):
        shared = names[one] & names[other]
        assert bool(shared) == bool(name := shared_name(one, other)), (one, other)
        assert not name or name in shared
