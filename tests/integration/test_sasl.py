"""Users: principals that the gateway sees in passing, in front of brokers that ask for SASL.

The cluster's users and listeners are in `tests.cluster.sasl`. Sluice itself authenticates with SCRAM.
kip13 arithmetic for one request of S bytes in a fresh window: X = S/T - 10 s.
"""

import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, processes, tools
from tests.cluster.sasl import MECHANISMS, REAUTH, REAUTH_SECONDS, SASL, SLUICE_LOGIN, bearer_token, password
from tests.conftest import CreateTopic
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import PRODUCE, Topic, batch, describe, produce_request
from tests.support.round_trips import ROUND_TRIPS, Credentials
from tests.support.waiting import until
from tests.support.wire import Wire, request, response, wired
from tests.support.workers import ALIKE, one_process

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
BROKER = 1
FAILED = 58
ALICE_BYTES_PER_SECOND = 10_000
AT_ONCE_SECONDS = 1.0
SHARED = "one-client-id"


@pytest.fixture(scope="module")
def sluice(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    """kip13; only alice has a quota."""
    quotas = {"alice": {"producer_byte_rate": ALICE_BYTES_PER_SECOND}}
    made = SluiceSettings(kafka.bootstrap(SASL), cluster=SLUICE_LOGIN, user_quotas=quotas)
    with SluiceProcess.configured(made, tmp_path_factory.mktemp("sasl")) as process:
        yield process


@pytest.fixture(scope="module")
def stock(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """A topic to produce to: six partitions, two of them led by broker 1."""
    return describe(kafka, create_topic(partitions=6))


@pytest.fixture
def client_id() -> str:
    return f"sasl-{secrets.token_hex(4)}"


def known(sluice: SluiceProcess, mechanism: str, result: str = "known") -> float:
    return sluice.metric("sluice_authentications_total", mechanism=mechanism, result=result)


def moved(sluice: SluiceProcess, user: str, client_id: str) -> float:
    return sluice.metric("sluice_client_bytes_total", user=user, client_id=client_id)


def handshake(wire: Wire, mechanism: str, version: int = 1) -> bytes:
    return wire.ask(request(SASL_HANDSHAKE, version, mechanism=mechanism), 5).frame


def authenticate(wire: Wire, token: bytes, version: int = 2) -> bytes:
    return wire.ask(request(SASL_AUTHENTICATE, version, auth_bytes=token), 6).frame


def plain(user: str, secret: str | None = None) -> bytes:
    return f"\0{user}\0{password(user) if secret is None else secret}".encode()


def log_in(wire: Wire, user: str) -> None:
    handshake(wire, "PLAIN")
    received = response(SASL_AUTHENTICATE, 2, authenticate(wire, plain(user)))
    assert received.error_code == 0, received


def told_ms(wire: Wire, topic: Topic, size: int) -> int:
    """Produce so many bytes; gives the throttle time of the response."""
    message = produce_request(topic, topic.led_by(BROKER)[0], batch([bytes(size)]))
    throttle_ms: int = response(PRODUCE, 9, wire.ask(message).frame).throttle_time_ms
    return throttle_ms


@pytest.mark.parametrize(
    "mechanism", [pytest.param(one, marks=() if one == "PLAIN" else ALIKE) for one in MECHANISMS]
)
@pytest.mark.parametrize("family", list(ROUND_TRIPS))
def test_client_is_known_by_its_principal(
    sluice: SluiceProcess, topic: str, client_id: str, tmp_path: Path, family: str, mechanism: str
) -> None:
    before = known(sluice, mechanism)
    bob, values = Credentials.of("bob", mechanism), [f"by {family}".encode()]
    assert ROUND_TRIPS[family](sluice.bootstrap, topic, client_id, bob, tmp_path, values) == values
    assert known(sluice, mechanism) > before
    series = [line for line in sluice.get("/metrics")[1].splitlines() if "sluice_client_bytes_total{" in line]
    mine = [line for line in series if f'client_id="{client_id}' in line and not line.endswith(" 0.0")]
    assert mine
    assert all('user="bob"' in line for line in mine), mine


@one_process("a first throttle time is that of a worker's share, which begins with a full window")
def test_users_with_one_client_id_are_held_apart(sluice: SluiceProcess, stock: Topic) -> None:
    with (
        wired(sluice.ports.address(BROKER), SHARED) as alice,
        wired(sluice.ports.address(BROKER), SHARED) as bob,
    ):
        log_in(alice, "alice")
        log_in(bob, "bob")
        # 120,000 B / 10,000 B/s - 10 s, but for headers and what tests before have sent as alice; together 14 s.
        assert told_ms(alice, stock, 120_000) == pytest.approx(2_000, abs=1_000)
        assert told_ms(bob, stock, 120_000) == 0
        assert bob.ask(request(3, 9, topics=[], allow_auto_topic_creation=False)).seconds < AT_ONCE_SECONDS
    assert moved(sluice, "alice", SHARED) > 120_000
    assert moved(sluice, "bob", SHARED) > 120_000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_password_comes_back_unchanged_and_leaves_nothing(
    kafka: Cluster, sluice: SluiceProcess, client_id: str, mechanism: str
) -> None:
    token = plain("alice", "wrong") if mechanism == "PLAIN" else b"n,,n=nobody,r=nonce"
    said = []
    failed = known(sluice, mechanism, "failed")
    for address in (kafka.address(BROKER, SASL), sluice.ports.address(BROKER)):
        with wired(address, client_id) as wire:
            said.append((handshake(wire, mechanism), authenticate(wire, token)))
    assert said[0] == said[1]
    assert response(SASL_AUTHENTICATE, 2, said[1][1]).error_code == FAILED
    assert known(sluice, mechanism, "failed") == failed + 1
    assert moved(sluice, "alice", client_id) == 0


def test_mechanism_that_no_broker_knows_is_refused_by_the_broker(
    kafka: Cluster, sluice: SluiceProcess
) -> None:
    said = []
    for address in (kafka.address(BROKER, SASL), sluice.ports.address(BROKER)):
        with wired(address) as wire:
            said.append(handshake(wire, "AWS_MSK_IAM"))
    assert said[0] == said[1]
    assert known(sluice, "AWS_MSK_IAM", "failed") == 1


def test_scram_tokens_without_a_header_name_their_user(
    sluice: SluiceProcess, stock: Topic, client_id: str
) -> None:
    from kafka.net.sasl.scram import SaslMechanismScram

    config = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "bob"}
    client = SaslMechanismScram(**config, sasl_plain_password=password("bob"))
    with wired(sluice.ports.address(BROKER), client_id) as wire:
        handshake(wire, "SCRAM-SHA-256", 0)
        while not client.is_done():
            token = client.auth_bytes()
            wire.send_bytes(struct.pack(">i", len(token)) + token)
            client.receive(wire.receive()[4:])
        assert told_ms(wire, stock, 1000) == 0
    assert moved(sluice, "bob", client_id) > 1000


def test_bearer_token_behind_a_refused_one_names_its_user(
    sluice: SluiceProcess, stock: Topic, client_id: str
) -> None:
    # A broker takes another token in place of the acknowledgement that RFC 7628 asks for.
    with wired(sluice.ports.address(BROKER), client_id) as wire:
        handshake(wire, "OAUTHBEARER")
        refused = response(SASL_AUTHENTICATE, 2, authenticate(wire, b"n,,\x01auth=Bearer opaque\x01\x01"))
        assert (refused.error_code, bool(refused.auth_bytes)) == (0, True)
        token = b"n,,\x01auth=Bearer " + bearer_token("alice").encode() + b"\x01\x01"
        accepted = response(SASL_AUTHENTICATE, 2, authenticate(wire, token))
        assert (accepted.error_code, bool(accepted.auth_bytes)) == (0, False), str(accepted)
        told_ms(wire, stock, 10_000)
    assert moved(sluice, "alice", client_id) > 10_000


def test_secrets_are_in_no_log(sluice: SluiceProcess) -> None:
    text = sluice.log(10_000_000)
    assert "secret-12" not in text
    assert "wrong" not in text


def test_delegation_token_has_no_name_and_is_counted(
    kafka: Cluster, sluice: SluiceProcess, topic: str, client_id: str, tmp_path: Path
) -> None:
    owner = Credentials.of("alice", "SCRAM-SHA-256").java(tmp_path)
    said = tools.run(
        tools.DELEGATION_TOKENS,
        *("--bootstrap-server", kafka.bootstrap(SASL), "--command-config", owner),
        *("--create", "--max-life-time-period", "-1"),
    )
    token_id, hmac = next(line.split()[:2] for line in said.splitlines() if "User:alice" in line)
    who = Credentials(token_id, "SCRAM-SHA-256", hmac, delegation=True)
    assert ROUND_TRIPS["java"](sluice.bootstrap, topic, client_id, who, tmp_path, [b"by token"])
    assert known(sluice, "delegation token", "unknown") >= 1
    assert moved(sluice, "", client_id) > 0


@pytest.fixture(scope="module")
def again(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    """In front of the listener whose sessions last three seconds; alice and bob have different quotas."""
    rates = {"alice": 100_000, "bob": 300_000}
    quotas = {user: {"producer_byte_rate": rate} for user, rate in rates.items()}
    policy = {"policy": "schedule", "scope": "cluster"}
    made = SluiceSettings(kafka.bootstrap(REAUTH), quotas=policy, cluster=SLUICE_LOGIN, user_quotas=quotas)
    with SluiceProcess.configured(made, tmp_path_factory.mktemp("again")) as process:
        yield process


def test_request_behind_a_mute_arrives_before_its_session_is_over(again: SluiceProcess, stock: Topic) -> None:
    # With schedule at 100,000 B/s these are 8 s of debt, and the session lasts 3: whatever a broker reads after that,
    # it closes on, although the client has sent it in time.
    with wired(again.ports.address(BROKER), "session") as wire:
        log_in(wire, "alice")
        throttled = told_ms(wire, stock, 900_000) / 1000
        assert throttled < REAUTH_SECONDS
        received = wire.ask(request(3, 9, topics=[], allow_auto_topic_creation=False))
        assert throttled / 2 < received.seconds < throttled + 2 * AT_ONCE_SECONDS


def rate_of(sluice: SluiceProcess, user: str, client_id: str, seconds: float) -> float:
    """Bytes/s over a time, as Sluice counts them."""
    before = moved(sluice, user, client_id)
    started = time.monotonic()
    time.sleep(seconds)
    return (moved(sluice, user, client_id) - before) / (time.monotonic() - started)


def test_clients_authenticate_again_while_they_produce_at_their_quotas(
    again: SluiceProcess, topic: str, tmp_path: Path
) -> None:
    opened = again.metric("sluice_connections_opened_total")
    authenticated = known(again, "SCRAM-SHA-256")
    common = (
        *("--topic", topic, "--num-records", "1000000", "--record-size", "1000", "--throughput", "2000"),
        *("--bootstrap-server", again.bootstrap),
        *("--command-property", f"client.id={SHARED}", "batch.size=16384", "buffer.memory=131072"),
    )
    children = []
    for user in ("alice", "bob"):
        login = ("--command-config", Credentials.of(user, "SCRAM-SHA-256").java(tmp_path))
        command = tools.command(tools.PRODUCER_PERFORMANCE, *common, *login)
        children.append(processes.start(command, log=tmp_path / user))
    try:
        until(lambda: moved(again, "bob", SHARED), "bob's records pass", 30)
        time.sleep(3)  # bursts are over
        alice = rate_of(again, "alice", SHARED, 6)
        bob = rate_of(again, "bob", SHARED, 6)
    finally:
        for child in children:
            processes.kill(child)
    assert 50_000 < alice < 150_000
    assert 150_000 < bob < 450_000
    sessions = known(again, "SCRAM-SHA-256") - authenticated
    assert sessions - (again.metric("sluice_connections_opened_total") - opened) >= 12 / REAUTH_SECONDS
    assert moved(again, "ANONYMOUS", SHARED) == 0
