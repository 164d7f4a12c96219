"""What several keys must agree on."""

import os
from pathlib import Path

import pytest

from proxy.config import Config, unwritable
from tests.support.configurations import parsed, refused

CLUSTER = '[cluster]\nbootstrap = "10.0.0.9:9092"\n'


def made(text: str) -> Config:
    return parsed(CLUSTER + text)


NEXT = '[[listeners]]\nname = "b"\n'


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("[quotas]\npartition_mutations_burst = 5", "quotas.partition_mutations_burst",
         "needs partition_mutations_rate: without it nothing is limited (got 5.0)"),
        ("bootstrap_port = 19110", "listeners[0].first_broker_port",
         "port 19100 to 19163 is bound already by listeners[0].bootstrap_port"),
        (NEXT + "bootstrap_port = 19091\nfirst_broker_port = 19163", "listeners[1].first_broker_port",
         "port 19163 to 19226 is bound already by listeners[0].first_broker_port"),
        ('[admin]\nbind = "127.0.0.1:19090"', "admin.bind",
         "port 19090 is bound already by listeners[0].bootstrap_port (19090)"),
        ('[admin]\nbind = "0.0.0.0:19101"', "admin.bind",
         "port 19101 is bound already by listeners[0].first_broker_port (19100 to 19163)"),
        ("advertised_bootstrap_port = 30010\nadvertised_first_broker_port = 30000",
         "listeners[0].advertised_first_broker_port", "port 30000 to 30063 is advertised already"),
        ("first_broker_port = 65500", "listeners[0].first_broker_port",
         "with broker_id_max = 63 the last port is 65563, above 65535 (got 65500)"),
        ("advertised_first_broker_port = 65500", "listeners[0].advertised_first_broker_port",
         "with broker_id_max = 63"),
        ('broker_id_max = 5\nupstreams = { 6 = "a:1" }', "listeners[0].upstreams.6",
         "is above broker_id_max = 5, and has no port (got 6)"),
        ('[[listeners]]\nbind = "127.0.0.2"', "listeners[1].name",
         "each listener must have its own name (got 'clients')"),
        ('upstreams = { 1 = "127.0.0.1:19101" }', "listeners[0].upstreams.1",
         "is the address of Sluice itself: listeners[0].upstreams.1"),
    ],
)  # fmt: skip
def test_contradiction_is_refused_with_both_keys(text: str, path: str, problem: str) -> None:
    assert refused(f"{CLUSTER}[[listeners]]\n{text}").startswith(f"{path}: {problem}")


def test_bootstrap_at_sluices_own_port_is_refused() -> None:
    message = refused('[cluster]\nbootstrap = "localhost:19090"\n[[listeners]]\n')
    assert message.startswith("cluster.bootstrap: is the address of Sluice itself")


@pytest.mark.parametrize(
    "text",
    [
        '[[listeners]]\n[[listeners]]\nname = "b"\nbind = "127.0.0.2"',  # the same ports on another address
        '[[listeners]]\nupstreams = { 1 = "a:1", 40 = "b:1" }\n[admin]\nbind = "127.0.0.1:19120"',  # between brokers
        '[[listeners]]\n[admin]\nbind = ""',
        '[[listeners]]\nupstreams = { 1 = "127.0.0.1:9092" }',
    ],
)
def test_ports_without_overlap_are_valid(text: str) -> None:
    assert made(text).warnings == ()


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


def test_sidecar_advertises_nothing_that_could_overlap() -> None:
    sidecars = (
        '[[listeners]]\nupstreams = { 1 = "a:1" }\nadvertised_host = "h"\n'
        '[[listeners]]\nname = "b"\nbind = "127.0.0.2"\nupstreams = { 1 = "a:1" }\nadvertised_host = "h"'
    )
    assert len(made(sidecars).listeners) == 2


SASL = 'sasl_mechanism = "PLAIN"\nusername = "sluice"\n'


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('sasl_mechanism = "PLAIN"\npassword = "x"', "cluster.username: is needed with PLAIN"),
        (SASL, "cluster.password_file: is needed with PLAIN"),
        ('sasl_mechanism = "OAUTHBEARER"', "cluster.password_file: is needed with OAUTHBEARER"),
        ('sasl_mechanism = "AWS_MSK_IAM"', "cluster.tls: is needed with AWS_MSK_IAM"),
        ('username = "sluice"', "cluster.sasl_mechanism: is needed with a username and password"),
        ('sasl_mechanism = "DIGEST-MD5"', 'cluster.sasl_mechanism: must be "PLAIN" or "SCRAM-SHA-256"'),
        ('security_protocol = "SASL_SSL"', "cluster.security_protocol: it follows from sasl_mechanism"),
        (SASL + "password = 7", "cluster.password: must be a string that is not empty"),
    ],
)
def test_incomplete_identity_is_refused(keys: str, message: str) -> None:
    assert refused(CLUSTER + keys + "\n[[listeners]]").startswith(message)


def test_password_of_the_environment_is_never_shown() -> None:
    environ = {"SLUICE_CLUSTER__PASSWORD": "very-secret"}
    config = parsed(CLUSTER + SASL + "[[listeners]]", environ=environ)
    assert config.cluster.password == "very-secret"
    assert config.warnings == ()
    assert "very-secret" not in repr((config, config.cluster, config.source))


def test_password_in_the_clear_is_warned_of_and_not_shown() -> None:
    config = made(SASL + 'password = "very-secret"\n[[listeners]]')
    assert [warning.split(":")[0] for warning in config.warnings] == ["cluster.password"]
    assert "very-secret" not in str(config.warnings)


@pytest.mark.parametrize("key", ["pasword", "Password", "sasl_password", "passwd"])
def test_misspelt_password_is_not_shown(key: str) -> None:
    message = refused(f'{CLUSTER}{key} = "very-secret"\n[[listeners]]')
    assert message.startswith(f"cluster.{key}: unknown key")
    assert "very-secret" not in message


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


SIDECAR = CLUSTER + '[[listeners]]\nfirst_broker_port = 19300\nupstreams = { 1 = "127.0.0.1:29392" }\n'
GATEWAY = CLUSTER + "[[listeners]]\n"
OF_BROKERS = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
REPLICATES = GATEWAY + OF_BROKERS
BOTH = SIDECAR + '[[listeners]]\nname = "brokers"\n' + OF_BROKERS
THROTTLED = '[replication]\nthrottled = "reassignments"\n'
SCOPE = '[quotas]\nscope = "cluster"\n'
HOLD = GATEWAY + '[quotas]\npolicy = "schedule"\n'
LONGER = "quotas.hold_seconds_max: 15 s is longer than quotas.mute_seconds_max, 14 s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[[listeners]]\nfirst_broker_port = 32760",
            "listeners[0].first_broker_port: port 32760 to 32823 is in the ephemeral range",
        ),
        (GATEWAY + THROTTLED, 'replication: has no effect without a listener of kind "replication"'),
        (GATEWAY + '[replication]\nthrottled = "cluster"\n', ""),  # as it is by default
        (REPLICATES + THROTTLED + 'leader_rate = "4M"\n', ""),
        (REPLICATES + THROTTLED + 'leader_rate = "40"\n', "replication.leader_rate: 40 is 40 bytes a second"),
        (BOTH, 'replication.throttled: with "cluster" and a sidecar of clients'),
        (BOTH + THROTTLED, ""),
        (SIDECAR + SCOPE, 'quotas.scope: "cluster" without [fleet] is the one broker behind this sidecar'),
        (SIDECAR + SCOPE + '[fleet]\nholder = "h:1"\n', ""),
        (SIDECAR.replace("{", '{ 2 = "127.0.0.1:29393",') + SCOPE, ""),
        (GATEWAY + SCOPE, ""),
        (HOLD + "hold_seconds_max = 30", "quotas.hold_seconds_max: 30 s is longer"),
        (HOLD + "mute_seconds_max = 14", LONGER),
        (HOLD + "mute_seconds_max = 15", ""),
        (HOLD + "mute_seconds_max = 5\nhold_seconds_max = 5", ""),
        (GATEWAY + '[quotas]\npolicy = "kip13"\nmute_seconds_max = 1\n', ""),  # which has no hold
        (GATEWAY + '[quotas]\nalter_principals = ["*"]\n', ""),  # all principals
    ],
)
def test_what_is_probably_a_mistake_is_warned_of(text: str, said: str) -> None:
    found = parsed(text if text.startswith(CLUSTER) else CLUSTER + text).warnings
    assert [warning[: len(said)] for warning in found] == [said] * bool(said)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('producer_override = "app-*:4M"', "producer_override: 'app-*': there are no patterns"),
        ('consumer_override = "a:1M,*:4M"', 'every name without an entry of its own is "<default>"'),
        (
            'alter_principals = ["User:ops"]',
            "'User:ops': users are named without their principal's type: 'ops'",
        ),
        ('describe_principals = ["ops-*"]', "describe_principals: 'ops-*': there are no patterns"),
        (
            'producer_default = "2"',
            '2 is 2 bytes a second, less than one request: with a unit it is "2k" or "2M"',
        ),
        ('consumer_override = "a:4"', "consumer_override: a:4 is 4 bytes a second"),
        ('policy = "kip13"\nmute_seconds_max = 20000', "mute_seconds_max: counts seconds: 20000 are 333 min"),
    ],
)
def test_misleading_quota_names_are_warned_of(key: str, said: str) -> None:
    (warning,) = parsed(f"{GATEWAY}[quotas]\n{key}\n").warnings
    assert warning.startswith("quotas.")
    assert said in warning
