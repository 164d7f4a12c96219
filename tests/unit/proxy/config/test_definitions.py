"""What a reload may apply, and what needs a restart."""

from pathlib import Path
from typing import Any

import pytest

from proxy.config import Changes, Config, compare, engine_options, merge_live, read_definitions, unenforced
from proxy.system.errors import ConfigError
from quotas.definitions.entities import DEFAULT, Entity
from quotas.options import EngineOptions
from tests.support import configurations
from tests.support.configurations import parsed

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\nname = "a"\n'


def made(text: str = "", small: str = SMALL) -> Config:
    return parsed(small + text)


@pytest.mark.parametrize(
    ("text", "live", "restart"),
    [
        ("", (), ()),
        ('[quotas]\nmode = "observe"\nproducer_default = 5', ("quotas.mode", "quotas.producer_default"), ()),
        ('[quotas]\nfile = "q"\nproducer_override = "a:1"', ("quotas.file", "quotas.producer_override"), ()),
        ('[quotas]\npolicy = "kip13"', ("quotas.policy", "quotas.hold_seconds_max"), ()),
        ('[quotas]\nscope = "broker"', (), ("quotas.scope",)),
        ('[log]\nlevel = "debug"\nformat = "json"', ("log.level",), ("log.format",)),
        ("[limits]\nidle_seconds = 1", (), ("limits.idle_seconds",)),
        ('[admin]\nbind = ""', (), ("admin.bind",)),
        ("[[listeners]]\nname = 'b'\nbootstrap_port = 18090\nfirst_broker_port = 18100", (), ("listeners",)),
    ],
)
def test_changed_keys_are_named(text: str, live: tuple[str, ...], restart: tuple[str, ...]) -> None:
    assert compare(made(), made(text)) == Changes(live, restart)


def test_changed_listener_is_named_by_its_key() -> None:
    changes = compare(made(), made(small=SMALL.replace('"a"', '"b"') + "broker_id_max = 5\n"))
    assert changes == Changes((), ("listeners[0].name", "listeners[0].broker_id_max"))


def test_merge_takes_live_keys_and_keeps_the_others() -> None:
    old = made('[limits]\nidle_seconds = 5\n[log]\nformat = "text"')
    new = made(
        '[limits]\nidle_seconds = 7\n[log]\nformat = "json"\nlevel = "error"\n'
        '[quotas]\nmode = "observe"\nscope = "broker"',
        small=SMALL + "broker_id_max = 9\n",
    )
    merged = merge_live(old, new)
    assert (merged.quotas.mode, merged.log.level) == ("observe", "error")
    assert (merged.limits.idle_seconds, merged.log.format, merged.quotas.scope) == (5.0, "text", "cluster")
    assert merged.listeners == old.listeners
    assert compare(old, merged).restart == ()
    assert compare(merged, new).live == ()


GATEWAY = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\n'


def made_in(base: Path, text: str) -> Config:
    return parsed(GATEWAY + text, base)


def producer_rate(config: Config, client_id: str, quota_text: str = "") -> float | None:
    return read_definitions(config.quotas, quota_text).limit("producer_byte_rate", "", client_id)[0]


def test_engine_options_are_the_settings() -> None:
    keys: dict[str, Any] = {"policy": "schedule", "mode": "observe", "scope": "cluster"}
    keys |= {"window_samples": 5, "window_seconds": 2, "burst_seconds": 0.5}
    keys |= {"hold_seconds_max": 3.0, "mute_seconds_max": 4.0, "new_connections": "as-kafka"}
    keys |= {"partition_mutations_rate": 0.5, "partition_mutations_burst": 100.0}
    keys |= {"charge_validate_only": False, "charge_auto_created": False, "unknown_users": "refuse"}
    found = engine_options(
        configurations.made(quotas=keys, limits={"client_ids_max": 6, "kept_bytes_max": "8M"})
    )
    # Three eighths of what is kept are for clients.
    assert found == EngineOptions(**keys, client_ids_max=6, client_bytes_max=3_000_000)


@pytest.mark.parametrize("value", ["0", "-1", '"x"', "nan", "inf", "true"])
def test_mutation_rate_that_cannot_be_is_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"^quotas\.partition_mutations_rate: "):
        made_in(tmp_path, f"[quotas]\npartition_mutations_rate = {value}")


def test_file_beats_static_and_arguments_beat_both(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(
        '[[quota]]\nclient_id = "b"\nproducer_byte_rate = "2k"\n[[quota]]\nclient_id = "c"\nproducer_byte_rate = "3k"\n'
    )
    config = made_in(
        tmp_path, '[quotas]\nfile = "q.toml"\nproducer_default = 1000\nproducer_override = "a:1,b:2"\n'
    )
    given = '[[quota]]\nclient_id = "c"\nproducer_byte_rate = 7\n'
    assert [producer_rate(config, name, given) for name in ("x", "a", "b", "c")] == [1000, 1, 2000, 7]
    assert [producer_rate(config, name) for name in ("x", "a", "b", "c")] == [1000, 1, 2000, 3000]


def test_nothing_set_means_unlimited(tmp_path: Path) -> None:
    assert producer_rate(made_in(tmp_path, ""), "a") is None


NAMED = '[[quota]]\nclient_id = "a"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            NAMED + "producer_rate = 5",
            "producer_rate: unknown key, value 5; did you mean 'producer_byte_rate'?",
        ),
        ('[[quota]]\nclientid = "a"', "clientid: unknown key, value 'a'; did you mean 'client_id'?"),
        (
            NAMED + "connection_creation_rate = 5",
            "connection_creation_rate: is no limit of client_id; its limits: ",
        ),
        (
            NAMED + "producer_byte_rate = 0",
            "producer_byte_rate: must be greater than 0, not 0.0; without the key",
        ),
        ("[[quota]]\nzzz = 1", "zzz: unknown key, value 1; known: user, client_id, ip, topic, producer"),
        ("quota = ", ": not TOML"),
    ],
)
def test_wrong_quotas_file_names_file_key_and_value(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "q.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_definitions(made_in(tmp_path, '[quotas]\nfile = "q.toml"').quotas)
    place = f"{tmp_path / 'q.toml'}{'' if message.startswith(':') else ': quota[0].'}"
    assert str(caught.value).startswith(f"{place}{message}")


def test_quotas_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"q\.toml: cannot be read: No such file.*: touch /\S+/q\.toml"):
        read_definitions(made_in(tmp_path, '[quotas]\nfile = "q.toml"').quotas)


def test_wrong_argument_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--quota: quota\[0\]: names no user, client_id, ip or topic"):
        producer_rate(made_in(tmp_path, ""), "a", "[[quota]]\nproducer_byte_rate = 1\n")


def test_limits_without_effect_are_named(tmp_path: Path) -> None:
    text = (
        '[[quota]]\nuser = "u"\nproducer_byte_rate = 5000\n'
        '[[quota]]\nip = "10.0.0.1"\nconnection_creation_rate = 1\n'
        '[[quota]]\ntopic = "t"\nproducer_byte_rate = 5000\n'
        '[[quota]]\nuser = "<default>"\nconnection_creation_rate = 1\n'
        '[[quota]]\nip = "kafka.example.org"\nconnection_creation_rate = 1\n'
        '[[quota]]\nclient_id = "c"\nproducer_byte_rate = 5000\nrequest_percentage = 5\n'
        '[[quota]]\nuser = "u"\nclient_id = "<default>"\nrequest_percentage = 5\n'
    )
    found = unenforced(read_definitions(made_in(tmp_path, "").quotas, text).entries())
    assert [warning.split(" has no effect")[0] for warning in found] == ["quota of ip 'kafka.example.org'"]


PATTERN = "there are no patterns, as in Kafka: it is this name letter by letter"
OF_ALL = 'letter by letter; every name without an entry of its own is "<default>"'


@pytest.mark.parametrize(
    ("part", "name", "said"),
    [
        ("client_id", "app-*", f"{PATTERN}: write each name"),
        ("client_id", "*", OF_ALL),
        ("topic", "orders.*", PATTERN),
        ("client_id", "team-?", PATTERN),
        ("user", "^team-.+", PATTERN),
        ("user", "User:ann", "users are named without their principal's type: 'ann'"),
        ("client_id", "default", OF_ALL),
        ("user", "<Default>", OF_ALL),
        ("client_id", "reports ", "a blank at an end is a part of the name; without it: 'reports'"),
        ("client_id", "a,b", "a comma is a part of the name; several names are several [[quota]] tables"),
    ],
)
def test_misleading_names_are_reported(part: str, name: str, said: str) -> None:
    (warning,) = unenforced([(Entity(**{part: name}), {})])
    assert warning.startswith(f"quota of {part.replace('_', ' ')} {name!r}: ")
    assert said in warning


@pytest.mark.parametrize("name", ["CN=ann,O=org", "reports", "defaults", "a b", "web-[1]", "$x", "a$"])
def test_ordinary_names_are_not_reported(name: str) -> None:
    assert unenforced([(Entity(user=name), {})]) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "producer_byte_rate",
            2,
            'is 2 bytes a second, less than one request: with a unit it is "2k" or "2M"',
        ),
        ("consumer_byte_rate", 999, '"999k" or "999M"'),
        ("consumer_byte_rate", 1000, ""),
        ("request_percentage", 0.5, "is in percent, and of one thread: a share of 0.5 is 50"),
        ("request_percentage", 1, ""),
        ("controller_mutation_rate", 0.1, ""),  # one in ten seconds
        ("connection_creation_rate", 1, ""),
    ],
)
def test_limit_that_lets_next_to_nothing_pass_is_reported(key: str, value: float, said: str) -> None:
    found = unenforced([(Entity(user="ann"), {key: value})], Path("/etc/quotas.toml"))
    assert len(found) == bool(said)
    for warning in found:
        assert warning.startswith(f"/etc/quotas.toml: quota of user 'ann': {key} = {value} ")
        assert warning.endswith(said)


def test_default_entities_are_no_patterns() -> None:
    assert unenforced((Entity(**{part: DEFAULT}), {}) for part in Entity._fields) == []


def test_limits_without_effect_are_bounded(tmp_path: Path) -> None:
    text = "".join(f'[[quota]]\nip = "host{index}"\nconnection_creation_rate = 1\n' for index in range(100))
    assert len(unenforced(read_definitions(made_in(tmp_path, "").quotas, text).entries())) == 20


def test_gateway_has_one_budget_over_all_brokers_unless_the_file_says_otherwise() -> None:
    cluster = '[cluster]\nbootstrap = "b:9092"\n'
    gateway = "[[listeners]]\n"
    ports = "bootstrap_port = 19290\nfirst_broker_port = 19300\n"
    sidecar = f'[[listeners]]\nname = "beside"\n{ports}upstreams = {{ 1 = "127.0.0.1:29392" }}\n'
    for text, scope in (
        (gateway, "cluster"),
        (sidecar, "broker"),
        (gateway + sidecar, "cluster"),
        (gateway + '[quotas]\nscope = "broker"\n', "broker"),
        (gateway + '[quotas]\nstore = "cluster"\n', "broker"),  # the brokers' own hold at each of them
        (gateway + '[quotas]\nstore = "cluster"\nscope = "cluster"\n', "cluster"),
    ):
        assert parsed(cluster + text).quotas.scope == scope, text


def test_old_name_of_a_scope_is_read_with_a_warning() -> None:
    tables = '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n[quotas]\nscope = "gateway"\n'
    config = parsed(tables)
    assert config.quotas.scope == "cluster"
    assert 'quotas.scope: "gateway" is now called "cluster"' in config.warnings
