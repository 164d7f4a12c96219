"""Arguments -> tables and quotas text."""

import argparse
from pathlib import Path

import pytest

from proxy.commands.serve import QUOTAS_MAX, quota_text, tables
from proxy.system.errors import ConfigError
from quotas.definitions.toml_file import parse
from quotas.errors import DefinitionError

NONE = dict.fromkeys(
    (
        "bootstrap_server",
        "policy",
        "mode",
        "scope",
        "workers",
        "admin",
        "log_level",
        "log_format",
        "listen",
        "advertised_host",
        "quotas_file",
    )
)


def given(**arguments: object) -> dict[str, object]:
    return tables(argparse.Namespace(**{**NONE, **arguments}))


def test_absent_arguments_set_no_key() -> None:
    assert given() == {}


def test_every_argument_sets_its_key() -> None:
    found = given(
        bootstrap_server="a:1,b:2",
        policy="schedule",
        mode="observe",
        scope="cluster",
        workers="2",
        admin="",
        log_level="debug",
        log_format="json",
    )
    assert found == {
        "cluster": {"bootstrap": "a:1,b:2"},
        "quotas": {"policy": "schedule", "mode": "observe", "scope": "cluster"},
        "process": {"workers": "2"},
        "admin": {"bind": ""},
        "log": {"level": "debug", "format": "json"},
    }


def test_quotas_file_is_relative_to_where_the_command_runs() -> None:
    assert given(quotas_file=Path("q.toml"), mode="observe") == {
        "quotas": {"mode": "observe", "file": str(Path.cwd() / "q.toml")}
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
        (None, "a", None, None),
        ("u", None, None, None),
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
