"""Files of operators that are no files, or hold what no reader takes: an error, never an end, and the old holds on."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from kafka_client import LoginError
from proxy.commands.reassign_plan import read_reassignment
from proxy.commands.servers import read_command_config
from proxy.config import Address, ListenerTls, QuotaSettings, load
from proxy.control.cluster import MapFile
from proxy.control.cluster.client import password_of
from proxy.control.quotas import FileStore
from proxy.control.reassign.file_journal import FileJournal
from proxy.control.reassign.journal import JournalError
from proxy.fleet.secret import FleetSecret
from proxy.net.tls import ServerTls
from proxy.system.errors import ConfigError
from proxy.system.stats import Stats
from tests.support.no_files import KINDS, put
from tests.unit.proxy.control.test_reload import QUOTA, SMALL, Site, lines

TEXTS = {
    "dotted": b"a." * 4999 + b"a = 1",
    "arrays": b"a = " + b"[" * 5000 + b"]" * 5000,
    "digits": b"a = " + b"1" * 5000,
    "hex digits": b"a = 0x" + b"f" * 5000,
    "not UTF-8": b"# \xff",
    "quota of digits": b"[[quota]]\nclient_id = 'a'\nproducer_byte_rate = " + b"1" * 5000,
    "quota of hex digits": b"[[quota]]\nclient_id = 'a'\nproducer_byte_rate = 0x" + b"f" * 5000,
    "quota of a dotted key": b"[[quota]]\n" + b"a." * 4999 + b"a = 1",
    "quotas as arrays": b"quota = " + b"[" * 5000 + b"]" * 5000,
}
WRONG = [*KINDS, *TEXTS, "large"]


def wrong(path: Path, kind: str) -> None:
    """Put something in a file's place."""
    path.unlink(missing_ok=True)
    if kind in KINDS:
        put(path, kind)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(1024**3)
    else:
        path.write_bytes(TEXTS[kind])


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    level = logging.getLogger().level
    made = Site(tmp_path)
    with closing(made.service):
        yield made
    logging.getLogger().setLevel(level)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("which", ["config_file", "quotas_file"])
async def test_reload_refuses_it_and_keeps_the_old_configuration(
    site: Site, which: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong(getattr(site, which), kind)
    await site.steps(3)
    assert (site.applied, site.stats.reloads) == ([], {"refused": 1})
    ((message, fields),) = lines(caplog)
    assert message == "configuration rejected; the old one stays in use"
    assert len(str(fields["problem"])) < 1000


@pytest.mark.parametrize("kind", ["fifo", "endless", "dotted"])
async def test_corrected_file_applies(site: Site, kind: str) -> None:
    wrong(site.quotas_file, kind)
    await site.steps(3)
    site.quotas_file.unlink()
    site.quotas_file.write_text(QUOTA.format(2222))
    await site.steps(3)
    assert (site.rates, site.stats.reloads) == ([2222], {"refused": 1, "ok": 1})


AT_START: dict[str, Callable[[Path], object]] = {
    "configuration": lambda path: load(path, {}),
    "quotas": lambda path: FileStore(QuotaSettings(file=path)),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("which", AT_START)
def test_file_at_start_is_refused_in_one_line(tmp_path: Path, which: str, kind: str) -> None:
    wrong(tmp_path / "a.toml", kind)
    with pytest.raises(ConfigError) as caught:
        AT_START[which](tmp_path / "a.toml")
    assert len(str(caught.value)) < 1000


def test_integer_of_too_many_digits_in_a_known_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(SMALL + "[limits]\nconnections_max = 0x" + "f" * 5000)
    with pytest.raises(ConfigError, match="an integer has more than 64 bits"):
        load(path, {})


def test_number_of_too_many_digits_in_the_environment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sluice.toml"
    path.write_text(SMALL)
    with pytest.raises(ConfigError, match=r"limits\.connections_max"):
        load(path, {"SLUICE_LIMITS__CONNECTIONS_MAX": "1" * 5000})


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "command-config": (read_command_config, ConfigError),
    "reassignment": (read_reassignment, ConfigError),
    "certificate": (lambda path: ServerTls(ListenerTls(cert_file=path, key_file=path), "tls"), ConfigError),
    "password": (password_of, LoginError),
    "journal": (lambda path: FileJournal(path.parent).read(), JournalError),
    "journal to recover": (lambda path: FileJournal(path.parent).recover(), JournalError),
    "journal to append to": (lambda path: FileJournal(path.parent).append([]), JournalError),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_anything_but_a_regular_file_is_reported(tmp_path: Path, name: str, kind: str) -> None:
    read, error = READERS[name]
    put(tmp_path / "journal", kind)
    with pytest.raises(error, match=KINDS[kind]):
        read(tmp_path / "journal")


@pytest.mark.parametrize("kind", KINDS)
async def test_secret_that_is_no_file_is_an_error(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "secret", kind)
    with pytest.raises(OSError, match=KINDS[kind]):
        await FleetSecret(tmp_path / "secret").read()


def test_certificate_file_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    wrong(tmp_path / "file", "large")
    with pytest.raises(ConfigError, match="is larger than 4194304 bytes"):
        ServerTls(ListenerTls(cert_file=tmp_path / "file", key_file=tmp_path / "file"), "tls")


MAPS = [
    b"[" * 100_000,
    b'{"1": ["h", ' + b"1" * 5000 + b"]}",
    b'{"' + b"1" * 5000 + b'": ["h", 9092]}',
    b'{"1": ["h", Infinity]}',
    b'{"1": ["h", 9092.5]}',
    b'{"1": [null, 9092]}',
    b'{"1": {"h": 9092}}',
    b'{"x": ["h", 9092]}',
    b"\xff",
    b"null",
    b"[]",
]


@pytest.mark.parametrize("content", [*MAPS, *KINDS, "large"], ids=[*range(len(MAPS)), *KINDS, "large"])
def test_malformed_broker_map_is_empty(
    tmp_path: Path, content: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "brokers.json"
    path.write_bytes(content) if isinstance(content, bytes) else wrong(path, content)
    assert MapFile(tmp_path, Stats()).read() == {}
    assert [record.getMessage() for record in caplog.records] == ["broker map not read"]


async def test_path_that_can_not_be_is_refused_at_reload(site: Site) -> None:
    site.config_file.write_text(SMALL + '[quotas]\nfile = "a\\u0000b"\n')
    await site.steps(3)
    assert (site.applied, site.stats.reloads) == ([], {"refused": 1})


@pytest.mark.parametrize("kind", ["fifo", "endless"])
def test_broker_map_replaces_any_old_file(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "brokers.tmp", kind)
    put(tmp_path / "brokers.json", kind)
    file = MapFile(tmp_path, Stats())
    assert file.write({1: Address("a", 1)})
    assert file.read() == {1: Address("a", 1)}
