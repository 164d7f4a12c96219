"""proxy.leases.sharing: what of the leases a process has by its configuration; nothing is connected or bound."""

import tomllib
from pathlib import Path

import pytest

from proxy.config import Address, Config, Source, parse
from proxy.leases import LeaseSharing
from proxy.stats import Stats
from quotas.replication.replication_quotas import ReplicationOptions, ReplicationQuotas

LISTENER = '[cluster]\nbootstrap = "h:1"\n[[listeners]]\n'
REPLICATION = LISTENER + 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
PEERS = '[leases]\npeers = "a,b"\nname = "a"\nholder = "h:2"\n'


def configured(text: str) -> Config:
    return parse(tomllib.loads(text), Source(), Path("/etc/sluice"))


def shared(text: str) -> tuple[LeaseSharing, ReplicationQuotas]:
    quotas = ReplicationQuotas(ReplicationOptions())
    return LeaseSharing(configured(text), quotas, Stats(), lambda: 0, lambda: None), quotas


def names(sharing: LeaseSharing) -> set[str]:
    assert sharing.view is not None, "it is shown"
    return {family.name.removeprefix("sluice_lease_") for family in sharing.view.families()}


OF_PEER = {"share", "byte_rate", "left_seconds", "holder_reachable", "asks"}
OF_HOLDER = {"peers", "requests"}


@pytest.mark.parametrize(
    ("text", "shown", "shares"),
    [
        (REPLICATION + PEERS, OF_PEER, True),
        (REPLICATION + PEERS + 'bind = "127.0.0.1:2"\n', OF_PEER | OF_HOLDER, True),
        (LISTENER + PEERS + 'bind = "127.0.0.1:2"\n', OF_HOLDER, False),
        (LISTENER + PEERS, set(), False),
    ],
)
async def test_process_has_its_part(text: str, shown: set[str], shares: bool) -> None:
    sharing, quotas = shared(text)
    assert names(sharing) == shown
    assert (quotas.shares is not None) is shares
    await sharing.close()


async def test_without_peers_there_is_nothing() -> None:
    sharing, quotas = shared(REPLICATION)
    assert sharing.view is None
    assert quotas.shares is None
    await sharing.start()
    await sharing.run()
    await sharing.close()


def test_reload_moves_the_client_to_another_holder() -> None:
    sharing, _ = shared(REPLICATION + PEERS)
    sharing.configure(configured(REPLICATION + PEERS.replace("h:2", "g:3")))
    assert sharing._client is not None
    assert sharing._client.holder == Address("g", 3)
