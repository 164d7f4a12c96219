"""Certificates that change on disk: what is taken, when, and that a wrong file changes nothing."""

import logging
import shutil
from pathlib import Path

import pytest

from proxy.config import Config, load
from proxy.control.reload import Certificates
from proxy.system.errors import ConfigError
from proxy.system.stats import Stats
from tests.support.certificates import Authority, Certificate

TEXT = """
[cluster]
bootstrap = "127.0.0.1:9092"
[cluster.tls]
ca_file = "brokers.pem"
[[listeners]]
name = "secure"
[listeners.tls]
cert_file = "now/own.pem"
key_file = "now/own.key"
[[listeners]]
name = "plain"
bootstrap_port = 29090
first_broker_port = 29100
"""


class Site:
    """A configuration on disk whose certificate lies in a directory behind a link, as Kubernetes mounts it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority.make(directory, "brokers")
        self.stats = Stats()
        self.link = directory / "now"
        self.point_to("first")
        (directory / "sluice.toml").write_text(TEXT)
        self.certificates = Certificates(self.config(), self.stats)

    def config(self) -> Config:
        return load(self.directory / "sluice.toml", {})

    def issue(self, name: str) -> Certificate:
        return self.authority.issue(name)

    def point_to(self, name: str) -> None:
        """Make a directory with a new certificate, and swap the link to it in one step."""
        made, target = self.issue(name), self.directory / f"of-{name}"
        target.mkdir()
        shutil.copy(made.cert_file, target / "own.pem")
        shutil.copy(made.key_file, target / "own.key")
        new = self.directory / "new"
        new.symlink_to(target)
        new.rename(self.link)

    async def steps(self, count: int = 3) -> None:
        for _ in range(count):
            await self.certificates.step()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_nothing_is_read_while_nothing_changes(site: Site) -> None:
    context = site.certificates.listeners["secure"].context
    await site.steps()
    assert site.certificates.listeners["secure"].context is context
    assert not site.stats.certificate_reloads


async def test_swapped_link_is_followed_and_only_the_side_whose_files_changed_is_read(site: Site) -> None:
    assert list(site.certificates.listeners) == ["secure"], "the other one has no TLS"
    assert list(site.stats.certificate_ends) == ["listeners[0].tls"]
    assert site.certificates.brokers is not None
    brokers = site.certificates.brokers.context
    old = site.certificates.listeners["secure"].context
    site.point_to("second")
    await site.steps()
    assert site.certificates.listeners["secure"].context is not old
    assert site.certificates.brokers.context is brokers
    assert site.stats.certificate_reloads == {"ok": 1}


async def test_certificate_without_its_key_changes_nothing_until_the_key_comes(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    old = site.certificates.listeners["secure"].context
    made = site.issue("second")
    shutil.copy(made.cert_file, site.link / "own.pem")
    with caplog.at_level(logging.INFO):
        await site.steps()
    assert site.certificates.listeners["secure"].context is old
    assert site.stats.certificate_reloads == {"refused": 1}
    assert "the key does not belong to this certificate" in str(caplog.records[-1].__dict__)
    shutil.copy(made.key_file, site.link / "own.key")
    await site.steps()
    assert site.certificates.listeners["secure"].context is not old
    assert site.stats.certificate_reloads == {"refused": 1, "ok": 1}


async def test_signal_reads_all(site: Site) -> None:
    site.certificates.request()
    await site.steps(1)
    assert site.stats.certificate_reloads == {"ok": 2}


def test_wrong_certificate_at_start_is_an_error_with_its_key(site: Site) -> None:
    (site.link / "own.key").unlink()
    with pytest.raises(ConfigError, match=r"^listeners\[0\]\.tls\.key_file: cannot be read"):
        Certificates(site.config(), Stats())


async def test_fleets_own_cluster_has_its_own_trust_which_is_read_again(site: Site) -> None:
    other = '[fleet]\nbind = "127.0.0.1:7000"\nbootstrap = "ops:9092"\n'
    (site.directory / "sluice.toml").write_text(TEXT + other)
    certificates = Certificates(site.config(), site.stats)
    assert certificates.brokers is not None
    assert certificates.fleet_tls is None  # nothing of [cluster.tls] is inherited
    own = Authority.make(site.directory, "ops")
    (site.directory / "sluice.toml").write_text(TEXT + other + '[fleet.cluster.tls]\nca_file = "ops.pem"\n')
    certificates = Certificates(site.config(), site.stats)
    tls = certificates.fleet_tls
    assert tls is not None
    before = tls()
    assert [one["subject"] for one in before.get_ca_certs()] == [((("commonName", "ops"),),)]
    shutil.copy(Authority.make(site.directory, "later").cert_file, own.cert_file)
    for _ in range(3):
        await certificates.step()
    assert [one["subject"] for one in tls().get_ca_certs()] == [((("commonName", "later"),),)]


async def test_without_tls_there_is_nothing_to_watch(site: Site) -> None:
    (site.directory / "sluice.toml").write_text(TEXT.partition("[cluster.tls]")[0] + "[[listeners]]\n")
    await Certificates(site.config(), Stats()).run()  # ends at once
