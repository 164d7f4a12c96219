"""`[capture]`: its keys, what they must agree on, and what is said where nothing is captured."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.commands.check_text import capture
from proxy.config import Config, LimitOptions, Source, decode_hook, encode_hook, parse
from tests.support.configurations import made


def parsed(**keys: object) -> Config:
    return made(capture=keys)


def test_absent_section_is_no_capture() -> None:
    assert Config().capture.directory is None
    assert list(capture(Config())) == []


def test_check_shows_the_capture_options() -> None:
    lines = list(capture(parsed(directory="c", sample=0.25, frames="keep")))
    assert lines == [
        "capture: 25% of the connections to /etc/sluice/c, requests with payload kept",
        "  files of 128M bytes or 300 s",
        "  at most 10G bytes in all",
    ]


def test_configuration_is_encoded_and_decoded() -> None:
    tables: dict[str, Any] = {
        "cluster": {"bootstrap": "h:1", "tls": {"ca_file": "ca.pem"}},
        "listeners": [{"upstreams": {"2": "[::1]:2"}, "tls": {"cert_file": "own.pem"}}],
        "quotas": {"producer_override": "a:1", "file": "q.toml"},
        "admin": {"actions_from": "10.0.0.0/8, ::1"},
        "replication": {"leader_throttled_replicas": {"t": "0:1"}},
    }
    config = parse(tables, Source(Path("/c"), {"SLUICE_LOG__LEVEL": "debug"}), Path("/etc/sluice"))
    data = msgspec.msgpack.encode(config, enc_hook=encode_hook)
    found = msgspec.msgpack.decode(data, type=Config, dec_hook=decode_hook)
    assert found == config
    assert found.source == config.source


@pytest.mark.parametrize("workers", [1, 64])
def test_part_of_a_limit_below_its_range_is_decoded(workers: int) -> None:
    limits = LimitOptions(kept_bytes_max=1024**2 // workers, pipes_max=0)
    data = msgspec.msgpack.encode(limits)
    assert msgspec.msgpack.decode(data, type=LimitOptions) == limits
