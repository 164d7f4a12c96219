"""SASL exchanges as dialogues: every byte passes, and the principal counts from the broker's success on."""

import struct
from base64 import urlsafe_b64encode
from typing import Any, Final

import pytest

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.channel.verdict import BARE_TOKENS_MAX
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.options import EngineOptions, UnknownUsers
from tests.support.engines import engine_with
from tests.support.frames import LIST_OFFSETS, frame, produce, request, some_response
from tests.support.playbook import Ends, More, Pass, Passthrough, Playbook, Wait, playbook
from tests.support.reachable import reachable
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, framed

SECRET = b"very-secret-indeed"
PLAIN = b"\0alice\0" + SECRET
FIRST = b"n,,n=alice,r=clientnonce"
FINAL = b"c=biws,r=clientnonceservernonce,p=" + SECRET
CHALLENGE = b"r=clientnonceservernonce,s=c2FsdA==,i=4096"
SIGNED = b"v=" + SECRET
JWT = b".".join(
    urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"none"}', b'{"sub":"alice"}', SECRET)
)
BEARER = b"n,,\x01auth=Bearer " + JWT + b"\x01\x01"
REFUSED = b'{"status":"invalid_token"}'
VERSIONS = [0, 1, 2]
FAILED = 58


def handshake(mechanism: str, version: int = 1) -> bytes:
    return framed(REQUESTS[SASL_HANDSHAKE][version](mechanism=mechanism), client_id="a")


def welcomed(error: int = 0, version: int = 1) -> bytes:
    return framed(RESPONSES[SASL_HANDSHAKE][version](error_code=error, mechanisms=["PLAIN"]))


def token(data: bytes, version: int = 2) -> bytes:
    return framed(REQUESTS[SASL_AUTHENTICATE][version](auth_bytes=data), client_id="a")


def verdict(data: bytes = b"", error: int = 0, version: int = 2, lifetime_ms: int = 0) -> bytes:
    return framed(
        RESPONSES[SASL_AUTHENTICATE][version](
            error_code=error,
            error_message="Authentication failed" if error else None,
            auth_bytes=data,
            session_lifetime_ms=lifetime_ms,
        )
    )


def exchange(talk: Playbook, sent: bytes, response: bytes) -> None:
    """One frame each way, both untouched."""
    talk.asks(0, sent)
    talk.responds(0, response)


def shaken(mechanism: str, version: int = 1, engine: Engine | None = None, **told: Any) -> Playbook:
    """A dialogue whose handshake is done."""
    talk = playbook(engine, **told)
    exchange(talk, handshake(mechanism, version), welcomed(version=version))
    return talk


def logged_in(engine: Engine | None = None, *, lifetime_ms: int = 0, **told: Any) -> Playbook:
    """A dialogue in which alice has logged in with PLAIN."""
    talk = shaken("PLAIN", engine=engine, **told)
    exchange(talk, token(PLAIN), verdict(lifetime_ms=lifetime_ms))
    return talk


def step(talk: Playbook, version: int | None, sent: bytes, response: bytes = b"") -> None:
    """One token each way; without a header where there is no version."""
    if version is None:
        exchange(talk, frame(sent), frame(response))
    else:
        exchange(talk, token(sent, version), verdict(response, version=version))


def far_over(talk: Playbook, now_ms: int) -> int:
    """For how long a Produce of 120 s of quota mutes, in ms: 110 s before any cap."""
    talk.orders("client", now_ms, produce(9, 120_000))
    return talk.mute_left_ms(now_ms)


def counted(talk: Playbook) -> dict[tuple[str, str], int]:
    return dict(talk.stats.sasl)


STEPS: Final = {
    "PLAIN": [(PLAIN, b"")],
    "SCRAM-SHA-256": [(FIRST, CHALLENGE), (FINAL, SIGNED)],
    "SCRAM-SHA-512": [(FIRST, CHALLENGE), (FINAL, SIGNED)],
    "OAUTHBEARER": [(BEARER, b"")],
    "GSSAPI": [(SECRET, SECRET)],
}


@pytest.mark.parametrize("version", [None, *VERSIONS])
@pytest.mark.parametrize("mechanism", STEPS)
def test_principal_counts_from_the_brokers_success_on_and_no_secret_is_kept(
    mechanism: str, version: int | None
) -> None:
    talk = shaken(mechanism, 0 if version is None else 1)
    secrets = (SECRET, JWT, JWT.split(b".")[1], b"nonce", b"biws")
    for sent, response in STEPS[mechanism]:
        assert talk.user == "ANONYMOUS"
        talk.asks(0, frame(sent) if version is None else token(sent, version))
        assert not [one for one in secrets if one in reachable(talk.channel)], "between token and verdict"
        assert talk.user == "ANONYMOUS"
        talk.responds(0, frame(response) if version is None else verdict(response, version=version))
        assert not [one for one in secrets if one in reachable(talk.channel)]
    known = mechanism != "GSSAPI"
    assert talk.user == ("alice" if known else "")
    if known:  # of the others it cannot be read which token is the last one
        exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))
        assert counted(talk) == {(mechanism, "known"): 1}


def test_refused_bearer_token_leaves_nothing() -> None:
    # RFC 7628: the reason comes without an error code, the client acknowledges it, and then it is refused.
    talk = shaken("OAUTHBEARER")
    exchange(talk, token(BEARER), verdict(REFUSED))
    assert talk.user == "ANONYMOUS"
    exchange(talk, token(b"\x01"), verdict(error=FAILED))
    assert talk.user == "ANONYMOUS"
    assert counted(talk) == {("OAUTHBEARER", "failed"): 1}


@pytest.mark.parametrize("version", [None, 2])
def test_bearer_token_behind_a_refused_one_counts(version: int | None) -> None:
    # Kafka's server takes another token in place of the acknowledgement.
    talk = shaken("OAUTHBEARER", 0 if version is None else 1)
    step(talk, version, b"n,,\x01auth=Bearer opaque\x01\x01", REFUSED)
    step(talk, version, BEARER)
    assert talk.user == "alice"
    assert counted(talk) == {("OAUTHBEARER", "known"): 1}


@pytest.mark.parametrize(
    ("mechanism", "before", "refused"),
    [
        ("PLAIN", [], PLAIN),
        ("SCRAM-SHA-256", [], FIRST),
        ("SCRAM-SHA-256", [(FIRST, CHALLENGE)], FINAL),
        ("GSSAPI", [], b"\x60gss"),
    ],
)
def test_refused_credentials_leave_nothing(
    mechanism: str, before: list[tuple[bytes, bytes]], refused: bytes
) -> None:
    talk = shaken(mechanism)
    for sent, response in before:
        step(talk, 2, sent, response)
    exchange(talk, token(refused), verdict(error=FAILED))
    step(talk, 2, PLAIN)  # belongs to no exchange
    assert talk.user == "ANONYMOUS"
    assert counted(talk) == {(mechanism, "failed"): 1}


def test_scram_success_without_a_signature_is_none() -> None:
    talk = shaken("SCRAM-SHA-256")
    exchange(talk, token(FIRST), verdict(SIGNED))
    exchange(talk, token(FINAL), verdict(b"e=other-error"))
    assert talk.user == "ANONYMOUS"


def test_mechanism_that_the_broker_refuses_leaves_nothing() -> None:
    talk = playbook()
    exchange(talk, handshake("PLAIN"), welcomed(error=33))
    exchange(talk, token(PLAIN), verdict())  # belongs to no exchange
    assert talk.user == "ANONYMOUS"
    assert counted(talk) == {("PLAIN", "failed"): 1}


def test_token_without_a_handshake_names_no_user() -> None:
    talk = playbook()
    exchange(talk, token(PLAIN), verdict())
    assert talk.user == "ANONYMOUS"


@pytest.mark.parametrize(
    ("mechanism", "sent", "label"),
    [
        ("GSSAPI", [b"\x60gss", b""], "GSSAPI"),
        ("AWS_MSK_IAM", [b'{"version":"2020_10_22"}'], "AWS_MSK_IAM"),
        ("X-" + "y" * 1000, [b"x"], "other"),
        ("SCRAM-SHA-256", [b"n,,n=tokenid,r=x,tokenauth=true", FINAL], "delegation token"),
        ("OAUTHBEARER", [b"n,,\x01auth=Bearer opaque\x01\x01"], "OAUTHBEARER"),
        ("PLAIN", [b"\0" + b"a" * 1025 + b"\0x"], "PLAIN"),
    ],
)
def test_principal_that_can_not_be_read_is_unknown(mechanism: str, sent: list[bytes], label: str) -> None:
    talk = shaken(mechanism)
    responses = [b""] if len(sent) == 1 else [CHALLENGE, SIGNED]
    for data, response in zip(sent, responses, strict=True):
        exchange(talk, token(data), verdict(response))
    assert talk.user == ""
    assert counted(talk) == {(label, "unknown"): 1}


UNREAD = [("GSSAPI", [b"\x60gss"]), ("SCRAM-SHA-256", [b"n,,n=tokenid,r=x,tokenauth=true", FINAL])]


@pytest.mark.parametrize(("rule", "user"), [("default", "<unknown>"), ("refuse", "ANONYMOUS")])
@pytest.mark.parametrize(("mechanism", "sent"), UNREAD)
def test_users_that_can_not_be_read_may_share_the_default_users_quota_or_be_refused(
    mechanism: str, sent: list[bytes], rule: UnknownUsers, user: str
) -> None:
    talk = shaken(mechanism, options=EngineOptions(unknown_users=rule))
    for data in sent[:-1]:
        exchange(talk, token(data), verdict(CHALLENGE))
    talk.asks(0, token(sent[-1]))
    talk.broker(0, verdict(SIGNED), Ends("unknown_user") if rule == "refuse" else Pass(verdict(SIGNED)))
    assert talk.user == user


@pytest.mark.parametrize("rule", ["none", "default", "refuse"])
def test_known_user_stays_known_after_an_unreadable_reauthentication(rule: UnknownUsers) -> None:
    talk = shaken("OAUTHBEARER", options=EngineOptions(unknown_users=rule))
    exchange(talk, token(BEARER), verdict())
    exchange(talk, handshake("OAUTHBEARER"), welcomed())
    exchange(talk, token(b"n,,\x01auth=Bearer opaque\x01\x01"), verdict())
    assert talk.user == "alice"


def test_requests_behind_a_token_wait_for_the_response() -> None:
    talk = shaken("PLAIN")
    sent = produce(9, 1000, correlation_id=8)
    talk.client(0, token(PLAIN) + sent, Pass(token(PLAIN)), Wait(0))
    talk.responds(0, verdict())
    assert talk.signalled, "who waits is to be woken"
    talk.client(0, b"", Pass(sent))
    assert talk.engine.client("alice", "a", 1).produce.total == 1000


def test_draining_channel_is_finished_after_the_login_under_way() -> None:
    talk = shaken("PLAIN")
    talk.asks(0, token(PLAIN))
    talk.channel.end_intake()
    talk.responds(0, verdict())
    assert talk.channel.idle()


def test_users_with_one_client_id_are_held_apart() -> None:
    engine = engine_with({Entity(user="alice"): {"producer_byte_rate": 1000}})
    alice = logged_in(engine, gateway=False)
    bob = shaken("PLAIN", engine=engine, gateway=False)
    exchange(bob, token(b"\0bob\0x"), verdict())
    sent = produce(9, 20_000)[:16_384]
    for talk in (alice, bob):
        talk.client(0, sent, Pass(sent), Passthrough(20_004 - 16_384))
    assert alice.mute_left_ms(0) == 10_000  # 20,000 B / 1,000 B/s - 10 s
    assert bob.mute_left_ms(0) == 0


def test_becoming_another_gives_back_every_flow() -> None:
    talk = playbook(producer_default=1000)
    exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))
    before = talk.quotas
    assert (before.produce.flows, before.fetch.flows) == (1, 1)
    exchange(talk, handshake("PLAIN"), welcomed())
    exchange(talk, token(PLAIN), verdict())
    assert talk.user == "alice"
    assert (before.produce.flows, before.fetch.flows) == (0, 0)


def test_authenticating_again_as_the_same_keeps_the_identity() -> None:
    talk = logged_in()
    exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))
    quota = talk.engine.client("alice", "a", 1)
    assert quota.produce.flows == 1
    exchange(talk, handshake("PLAIN"), welcomed())
    exchange(talk, token(PLAIN), verdict())
    assert quota.produce.flows == 1


@pytest.mark.parametrize(("error", "expected"), [(FAILED, "alice"), (0, "bob")])
def test_authenticating_again_as_another_is_the_brokers_decision(error: int, expected: str) -> None:
    talk = logged_in()
    exchange(talk, handshake("PLAIN"), welcomed())
    exchange(talk, token(b"\0bob\0x"), verdict(error=error))
    assert talk.user == expected


@pytest.mark.parametrize(
    ("lifetime_ms", "mutes"),
    [
        # 120,000 B / 1,000 B/s - 10 s = 110 s, capped at 20 s; told at 0 and at 2,000 ms.
        (0, (20_000, 20_000)),
        (10_000, (9_000, 7_000)),  # 10,000 ms less a tenth, from then on
        (2_100, (1_890, 0)),
        (3_600_000, (20_000, 20_000)),
    ],
)
def test_no_mute_outlasts_a_session(lifetime_ms: int, mutes: tuple[int, int]) -> None:
    for now_ms, muted_ms in zip((0, 2000), mutes, strict=True):
        talk = logged_in(producer_default=1000, gateway=False, lifetime_ms=lifetime_ms)
        assert far_over(talk, now_ms) == muted_ms


def test_session_that_is_renewed_may_be_muted_again() -> None:
    talk = logged_in(producer_default=1000, gateway=False, lifetime_ms=10_000)
    exchange(talk, handshake("PLAIN"), welcomed())
    talk.asks(8_500, token(PLAIN))
    talk.responds(8_500, verdict(lifetime_ms=10_000))
    assert far_over(talk, 8_500) == 9_000


def test_session_of_an_unreadable_user_ends_as_the_last_response_says() -> None:
    # Kafka tells 0 in every response but the last, and which one that is can not be read (GSSAPI: three tokens).
    talk = shaken("GSSAPI", producer_default=1000, gateway=False)
    exchange(talk, token(b"\x60gss"), verdict(b"\x60"))
    exchange(talk, token(b""), verdict(b"\x05\x04"))
    exchange(talk, token(b"\x05\x04"), verdict(lifetime_ms=10_000))
    assert far_over(talk, 0) == 9_000
    assert (talk.user, counted(talk)) == ("", {("GSSAPI", "unknown"): 1})


def test_late_refusal_of_an_unreadable_user_is_counted() -> None:
    talk = shaken("GSSAPI")
    exchange(talk, token(b"\x60gss"), verdict(b"\x60"))
    asked = request(LIST_OFFSETS, 7, size=60)
    talk.client(0, token(b"") + asked, Pass(token(b"")), Wait(0))
    talk.responds(0, verdict(error=FAILED))
    assert talk.user == ""
    assert counted(talk) == {("GSSAPI", "unknown"): 1, ("GSSAPI", "failed"): 1}


@pytest.mark.parametrize(("lifetime_ms", "hold_ms"), [(0, 15_000), (10_000, 500)])
def test_no_hold_is_long_in_a_short_session(lifetime_ms: int, hold_ms: int) -> None:
    options = EngineOptions(policy="schedule", hold_seconds_max=15)
    before = logged_in(producer_default=1000, options=options)
    before.orders("client", 0, produce(9, 100_000))
    talk = logged_in(before.engine, lifetime_ms=lifetime_ms)
    assert talk.held_until(10, produce(9, 10_000, correlation_id=2)) == 10 + hold_ms


@pytest.mark.parametrize(
    ("shaken_in", "sent", "cause"),
    [
        (None, request(SASL_HANDSHAKE, 2, b"\0\5PLAIN"), "unsupported_version"),
        (None, request(SASL_AUTHENTICATE, 3, b"\1"), "unsupported_version"),
        (1, struct.pack(">ihhih", 2_000_000, SASL_AUTHENTICATE, 1, 1, -1), "frame_length"),
        (1, request(SASL_AUTHENTICATE, 1, b"\0\0\1\0abc"), "malformed"),
        (0, struct.pack(">i", -1) + bytes(20), "frame_length"),
        (0, struct.pack(">i", 2_000_000) + bytes(20), "frame_length"),
    ],
)
def test_request_that_cannot_be_ends_the_connection(shaken_in: int | None, sent: bytes, cause: str) -> None:
    talk = playbook() if shaken_in is None else shaken("PLAIN", shaken_in)
    talk.client(0, sent, Ends(cause))


# Version 0 of the handshake: tokens without a header.


def test_bare_token_that_looks_like_a_request_is_a_token() -> None:
    # Authorization id "", user "A", then a password: the bytes of API key 65, version 0.
    talk = shaken("PLAIN", 0)
    exchange(talk, frame(b"\0A\0\0\0\0\0\0\0\0\0"), frame(b""))
    assert talk.user == "A"


def test_bare_bearer_token_that_is_refused() -> None:
    talk = shaken("OAUTHBEARER", 0)
    exchange(talk, frame(BEARER), frame(REFUSED))
    talk.asks(0, frame(b"\x01"))
    talk.channel.close(0)
    assert talk.user == "ANONYMOUS"
    assert counted(talk) == {("OAUTHBEARER", "failed"): 1}


def test_bare_tokens_of_gssapi_end_without_a_response() -> None:
    talk = shaken("GSSAPI", 0)
    exchange(talk, frame(b"\x60" + bytes(500)), frame(b"\x60" + bytes(100)))
    assert talk.user == ""
    exchange(talk, frame(b""), frame(b"\x05\x04" + bytes(30)))
    talk.asks(0, frame(b"\x05\x04" + bytes(40)))
    talk.asks(0, request(LIST_OFFSETS, 7, size=60, correlation_id=9))
    talk.responds(0, some_response(30, correlation_id=9))
    exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))
    assert counted(talk) == {("GSSAPI", "unknown"): 1}


def test_bare_last_token_and_the_first_request_in_one_read() -> None:
    talk = shaken("GSSAPI", 0)
    exchange(talk, frame(b"\x60" + bytes(500)), frame(b"\x60" + bytes(100)))
    talk.asks(0, frame(b"\x05\x04" + bytes(40)) + request(LIST_OFFSETS, 7, size=60, correlation_id=9))
    talk.responds(0, some_response(30, correlation_id=9))


def test_response_to_a_last_token_is_not_taken_for_the_next_ones() -> None:
    talk = shaken("CUSTOM", 0)
    exchange(talk, frame(b"x"), frame(b"y"))
    talk.asks(0, frame(b"\xff" * 20) + request(LIST_OFFSETS, 7, size=60, correlation_id=9))
    talk.responds(0, frame(b"zz") + some_response(30, correlation_id=9))


def test_token_sent_before_the_handshakes_response_waits_for_it() -> None:
    talk = playbook()
    talk.client(0, handshake("PLAIN", 0) + frame(PLAIN), Pass(handshake("PLAIN", 0)), Wait(0))
    talk.responds(0, welcomed(version=0))
    assert talk.signalled
    talk.client(0, b"", Pass(frame(PLAIN)))
    talk.responds(0, frame(b""))
    assert talk.user == "alice"


def test_bare_tokens_wait_where_too_many_are_owed() -> None:
    talk = shaken("CUSTOM", 0)
    empty, most = frame(b""), BARE_TOKENS_MAX
    talk.asks(0, empty * most)
    talk.client(0, empty * 3, Wait(0))
    assert talk.owed == most
    response = frame(b"yes") * (most // 2)
    signals = []
    for part in (response[:-7], response[-7:]):
        talk.responds(0, part)
        signals.append(talk.signalled)
    assert signals == [False, True], "who waits is to be woken"
    talk.client(0, b"", Pass(empty * 3))


@pytest.mark.parametrize("cut", [4, 5, 7, 8, 12])
def test_short_bare_response_and_the_next_response_in_one_read(cut: int) -> None:
    talk = shaken("CUSTOM", 0)
    talk.asks(0, frame(b"x"))
    talk.asks(0, request(LIST_OFFSETS, 7, size=60, correlation_id=9))
    response = frame(b"") + some_response(30, correlation_id=9)
    if cut == 4:
        talk.responds(0, response[:4])
        talk.responds(0, response[4:])
    elif cut < 12:
        talk.broker(0, response[:cut], Pass(response[:4]), More(8))
        talk.broker(0, response[cut:], Pass(response[4:]))
    else:
        talk.responds(0, response)


def test_cut_bare_response_that_is_shorter_than_a_head_is_kept_until_it_is_whole() -> None:
    talk = shaken("CUSTOM", 0)
    talk.asks(0, frame(b"x"))
    talk.broker(0, frame(b"xy")[:5], More(6))
    talk.broker(0, frame(b"xy")[5:], Pass(frame(b"xy")))
    assert not talk.owed


def test_negative_response_to_a_bare_token_ends_the_connection() -> None:
    talk = shaken("CUSTOM", 0)
    talk.asks(0, frame(b"x"))
    talk.broker(0, struct.pack(">i", -5) + bytes(8), Ends("broker_frame_length"))
