"""When files are read again, what is handed over, and that a wrong file changes nothing."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.config import Config, load
from proxy.control.quotas import FileStore, QuotaService
from proxy.control.reload import Reloader, Watch
from proxy.events import Event
from proxy.system.files import Signature
from proxy.system.logs import FIELDS
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\n'
QUOTA = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = {}\n'
ENFORCE = SMALL + '[quotas]\npolicy = "schedule"\nfile = "quotas.toml"\n'
OBSERVE = ENFORCE + 'mode = "observe"\n'
OLD, NEW, NEWER = (Signature(),), (Signature(1),), (Signature(2),)


class Site:
    """A configuration on disk, and what was applied of it."""

    def __init__(self, directory: Path) -> None:
        self.config_file = directory / "sluice.toml"
        self.quotas_file = directory / "quotas.toml"
        self.config_file.write_text(ENFORCE)
        self.quotas_file.write_text(QUOTA.format(1))
        self.stats = Stats()
        self.applied: list[tuple[Config, Definitions]] = []
        self.rates: list[float | None] = []  # noted at once: the definitions are the same object for ever
        self.told = asyncio.Event()
        config = load(self.config_file, {})
        self.service = quota_service(config, self.stats)
        self.events: list[Event] = []
        self.reloader = Reloader(config, self.service, self.stats, self.apply, self.events.append)

    def apply(self, config: Config, definitions: Definitions) -> None:
        """Note what is to apply."""
        self.applied.append((config, definitions))
        self.rates.append(definitions.limit("producer_byte_rate", "", "a")[0])
        self.told.set()

    async def steps(self, count: int = 2) -> None:
        """Look at the files, as often as it takes a change to come to rest."""
        for _ in range(count):
            await self.reloader.step()


def quota_service(config: Config, stats: Stats) -> QuotaService:
    store = FileStore(config.quotas, config.source.quota_text)
    return QuotaService(asyncio.get_running_loop(), store, config.quotas, stats, lambda: None)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    level = logging.getLogger().level
    made = Site(tmp_path)
    yield made
    made.service.close()
    logging.getLogger().setLevel(level)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    return [(record.getMessage(), getattr(record, FIELDS, {})) for record in caplog.records]


@pytest.mark.parametrize(
    ("seen", "changed", "settling"),
    [
        ((OLD, NEW, NEWER, NEWER, NEWER), [False, False, False, True, False], False),
        ((NEW, OLD, OLD), [False] * 3, False),  # restored
        ((NEW,), [False], True),
    ],
)
def test_watch_waits_until_a_change_has_come_to_rest(
    seen: tuple[tuple[Signature, ...], ...], changed: list[bool], settling: bool
) -> None:
    watch = Watch(OLD)
    assert [watch.observe(now) for now in seen] == changed
    assert watch.settling == settling


def test_watch_ignores_files_written_by_sluice() -> None:
    watch = Watch(OLD + OLD)
    for _ in range(3):
        watch.mark_read(OLD + NEW, NEW[0])
        assert not watch.observe(OLD + NEW)
    assert [watch.observe(now) for now in (OLD + NEWER, OLD + NEWER)] == [False, True]


def test_watch_reports_files_that_are_missing() -> None:
    watch = Watch(NEW)
    watch.mark_read(OLD, Signature())
    assert [watch.observe(OLD), watch.observe(OLD)] == [False, True]


async def test_nothing_is_read_while_nothing_changes(site: Site) -> None:
    await site.steps(3)
    assert site.applied == []
    assert not site.stats.reloads


async def test_changed_quotas_file_applies_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.quotas_file.write_text(QUOTA.format(2222))  # after the Reloader was made, before its first look
    await site.steps(4)
    assert site.rates == [2222]
    assert site.stats.reloads == {"ok": 1}
    fields = {"cause": "file changed", "keys_changed": "none", "quotas_changed": 1, "quota_entries": 1}
    assert lines(caplog) == [("configuration reloaded", fields)]


async def test_reload_counts_changed_entities(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kept = '[[quota]]\nclient_id = "kept"\nproducer_byte_rate = 1\n'
    site.quotas_file.write_text(QUOTA.format(1) + kept)
    await site.steps()
    site.config_file.write_text(OBSERVE)
    site.quotas_file.write_text(kept + '[[quota]]\nclient_id = "new"\nconsumer_byte_rate = 1\n')
    await site.steps()
    await site.reloader.reload("signal")
    said = [
        tuple(fields[name] for name in ("keys_changed", "quotas_changed", "quota_entries"))
        for message, fields in lines(caplog)
        if message == "configuration reloaded"
    ]
    # The first reload adds "kept", the second removes "a" and adds "new", the third finds what it has.
    assert said == [("none", 1, 2), ("quotas.mode", 2, 2), ("none", 0, 2)]


async def test_changed_configuration_applies_live_keys(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.config_file.write_text(
        SMALL
        + '[quotas]\nmode = "observe"\nproducer_default = 5\n[limits]\nidle_seconds = 1\n[log]\nlevel = "warning"'
    )
    await site.steps()
    ((config, definitions),) = site.applied
    assert config.quotas.mode == "observe"
    assert config.limits.idle_seconds == 600
    assert definitions.limit("producer_byte_rate", "", "x")[0] == 5
    assert logging.getLogger().level == logging.WARNING
    assert ("changed keys need a restart", {"keys": "limits.idle_seconds"}) in lines(caplog)


@pytest.mark.parametrize(
    ("name", "content", "key", "value"),
    [
        ("sluice.toml", SMALL + '[quotas]\nmode = "off"', "quotas.mode", "'off'"),
        ("sluice.toml", "[", "sluice.toml", "not TOML"),
        ("quotas.toml", QUOTA.format(-5), "quota[0].producer_byte_rate", "-5"),
    ],
)
async def test_wrong_file_changes_nothing(
    site: Site, caplog: pytest.LogCaptureFixture, name: str, content: str, key: str, value: str
) -> None:
    before = site.reloader.config
    (site.config_file.parent / name).write_text(content)
    await site.steps(4)
    assert site.applied == []
    assert site.reloader.config is before
    assert site.stats.reloads == {"refused": 1}
    ((message, fields),) = lines(caplog)
    assert message == "configuration rejected; the old one stays in use"
    assert key in str(fields["key"])
    assert value in str(fields["problem"])


async def test_file_that_is_gone_is_refused_and_taken_when_it_is_back(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.quotas_file.unlink()
    await site.steps()
    assert site.stats.reloads == {"refused": 1}
    without_effect = '[[quota]]\nip = "host"\nconnection_creation_rate = 1\n'
    site.quotas_file.write_text(QUOTA.format(7) + without_effect)
    await site.steps()
    assert site.rates == [7]
    warnings = [str(fields.get("warning")) for _, fields in lines(caplog)]
    assert any("quota of ip 'host' has no effect" in warning for warning in warnings)


async def test_another_quotas_file_is_watched_from_then_on(site: Site) -> None:
    other = site.quotas_file.with_name("other.toml")
    other.write_text(QUOTA.format(3))
    site.config_file.write_text(SMALL + '[quotas]\nfile = "other.toml"\n')
    await site.steps()
    other.write_text(QUOTA.format(44))
    await site.steps()
    site.quotas_file.write_text(QUOTA.format(555))
    await site.steps()
    assert site.rates == [3, 44]


async def test_key_that_needs_a_restart_is_named_at_every_reload(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.config_file.write_text(SMALL + "[limits]\nidle_seconds = 1\n")
    for _ in range(2):
        await site.reloader.reload("signal")
    named = [fields["keys"] for message, fields in lines(caplog) if message == "changed keys need a restart"]
    assert named == ["limits.idle_seconds"] * 2


async def test_signal_reads_again_though_nothing_changed(site: Site) -> None:
    task = asyncio.create_task(site.reloader.run())
    site.reloader.request()
    site.reloader.request()
    await site.told.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert site.rates == [1]
    assert site.stats.reloads == {"ok": 1}


async def test_without_files_a_signal_reads_arguments_and_environment_again() -> None:
    overrides = {"cluster": {"bootstrap": "a:1"}, "listeners": [{}]}
    config = load(None, {}, overrides, '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 9\n')
    applied: list[Definitions] = []
    quotas = quota_service(config, Stats())
    reloader = Reloader(config, quotas, Stats(), lambda _, definitions: applied.append(definitions))
    reloader.request()
    await reloader.step()
    quotas.close()
    assert [one.limit("producer_byte_rate", "", "a")[0] for one in applied] == [9]


@pytest.mark.parametrize("hours", [-48, 48], ids=["set back", "set forward"])
async def test_file_changed_under_another_clock_applies_once(site: Site, hours: int) -> None:
    site.quotas_file.write_text(QUOTA.format(2222))
    changed = site.quotas_file.stat().st_mtime + 3600 * hours
    os.utime(site.quotas_file, (changed, changed))
    await site.steps(4)
    assert (site.rates, site.stats.reloads) == ([2222], {"ok": 1})


async def test_reloads_are_told_with_the_mode(site: Site) -> None:
    site.config_file.write_text(OBSERVE)
    await site.steps()
    site.config_file.write_text(SMALL + "[quotas\n")
    await site.steps()
    reloaded, mode, rejected = site.events
    assert reloaded.kind == "config_reloaded"
    assert (reloaded.fields["ok"], reloaded.fields["keys"]) == (True, "quotas.mode")
    assert (mode.kind, mode.fields) == ("mode_changed", {"old": "enforce", "new": "observe"})
    assert (rejected.kind, rejected.fields["ok"]) == ("config_reloaded", False)
    assert rejected.fields["problem"]
    assert not any(event.line for event in site.events)  # the reload has logged them
