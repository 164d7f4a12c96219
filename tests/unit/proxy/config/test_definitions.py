"""What a reload may apply, and what needs a restart."""

from pathlib import Path
from typing import Any

import pytest

from proxy.config import Changes, Config, compare, engine_options, merge_live, read_definitions, unenforced
from proxy.system.errors import ConfigError
from quotas.definitions.entities import Entity
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


def made_in(base: Path, text: str) -> Config:
    return parsed(SMALL + text, base)


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
    assert producer_rate(made_in(tmp_path, ""), "a") is None  # nothing set means unlimited


@pytest.mark.parametrize(
    ("text", "said"), [("[[quota]]\nzzz = 1", ": quota[0].zzz: unknown key"), ("quota = ", ": not TOML")]
)
def test_wrong_quotas_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "q.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_definitions(made_in(tmp_path, '[quotas]\nfile = "q.toml"').quotas)
    assert str(caught.value).startswith(f"{tmp_path / 'q.toml'}{said}")


def test_warnings_of_quotas_are_bounded_and_name_their_file() -> None:
    many = [(Entity(ip=f"host{index}"), {"connection_creation_rate": 1.0}) for index in range(100)]
    found = unenforced(many, Path("/etc/quotas.toml"))
    assert len(found) == 20
    assert found[0].startswith("/etc/quotas.toml: quota of ip 'host0' has no effect")


def test_quotas_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"q\.toml: cannot be read: No such file.*: touch /\S+/q\.toml"):
        read_definitions(made_in(tmp_path, '[quotas]\nfile = "q.toml"').quotas)


SIDECAR = '[[listeners]]\nname = "beside"\nbootstrap_port = 19290\nfirst_broker_port = 19300\n'
SIDECAR += 'upstreams = { 1 = "127.0.0.1:29392" }\n'


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("[[listeners]]\n", "cluster"),
        (SIDECAR, "broker"),
        ("[[listeners]]\n" + SIDECAR, "cluster"),
        ('[[listeners]]\n[quotas]\nscope = "broker"\n', "broker"),
        ('[[listeners]]\n[quotas]\nscope = "gateway"\n', "cluster"),  # its old name
        ('[[listeners]]\n[quotas]\nstore = "cluster"\n', "broker"),  # the brokers' own hold at each of them
        ('[[listeners]]\n[quotas]\nstore = "cluster"\nscope = "cluster"\n', "cluster"),
    ],
)
def test_gateway_has_one_budget_over_all_brokers_unless_the_file_says_otherwise(
    text: str, scope: str
) -> None:
    assert parsed('[cluster]\nbootstrap = "b:9092"\n' + text).quotas.scope == scope
