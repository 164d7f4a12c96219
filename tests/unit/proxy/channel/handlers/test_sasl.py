"""SASL exchanges as dialogues: every byte passes, and the principal counts from the broker's success on."""

import struct
from base64 import urlsafe_b64encode

import pytest

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.channel import Channel
from proxy.channel.verdict import BARE_TOKENS_MAX
from quotas.definitions.entities import Entity
from quotas.options import EngineOptions, UnknownUsers
from tests.support.engines import engine_with
from tests.support.frames import LIST_OFFSETS, frame, produce, request, some_response
from tests.support.playbook import Ends, More, Pass, Passthrough, Playbook, Wait, channel_machine, playbook
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


def shaken(mechanism: str, version: int = 1, channel: Channel | None = None) -> Playbook:
    """A dialogue whose handshake is done."""
    talk = Playbook(channel or channel_machine())
    talk.asks(0, handshake(mechanism, version))
    talk.responds(0, welcomed(version=version))
    return talk


def exchange(talk: Playbook, sent: bytes, response: bytes) -> None:
    """One frame each way, both untouched."""
    talk.asks(0, sent)
    talk.responds(0, response)


def user(talk: Playbook) -> str:
    return talk.user


def far_over(talk: Playbook, now_ms: int) -> int:
    """For how long a Produce of 120 s of quota mutes, in ms: 110 s before any cap."""
    talk.orders("client", now_ms, produce(9, 120_000))
    return talk.mute_left_ms(now_ms)


def counted(talk: Playbook) -> dict[tuple[str, str], int]:
    return dict(talk.stats.sasl)


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_principal_counts_from_the_success_on(version: int) -> None:
    talk = shaken("PLAIN")
    talk.asks(0, token(PLAIN, version))
    assert user(talk) == "ANONYMOUS"
    talk.responds(0, verdict(version=version))
    assert user(talk) == "alice"
    assert counted(talk) == {("PLAIN", "known"): 1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_principal_counts_from_the_brokers_signature_on(mechanism: str, version: int) -> None:
    talk = shaken(mechanism)
    exchange(talk, token(FIRST, version), verdict(CHALLENGE, version=version))
    assert user(talk) == "ANONYMOUS"
    exchange(talk, token(FINAL, version), verdict(SIGNED, version=version))
    assert user(talk) == "alice"
    assert counted(talk) == {(mechanism, "known"): 1}


def test_bearer_principal_counts_from_the_empty_response_on() -> None:
    talk = shaken("OAUTHBEARER")
    exchange(talk, token(BEARER), verdict())
    assert user(talk) == "alice"


def test_refused_bearer_token_leaves_nothing() -> None:
    # RFC 7628: the reason comes without an error code, the client acknowledges it, and then it is refused.
    talk = shaken("OAUTHBEARER")
    exchange(talk, token(BEARER), verdict(REFUSED))
    assert user(talk) == "ANONYMOUS"
    exchange(talk, token(b"\x01"), verdict(error=FAILED))
    assert user(talk) == "ANONYMOUS"
    assert counted(talk) == {("OAUTHBEARER", "failed"): 1}


@pytest.mark.parametrize("version", [0, 1])
def test_bearer_token_behind_a_refused_one_counts(version: int) -> None:
    # Kafka's server takes another token in place of the acknowledgement.
    talk = shaken("OAUTHBEARER", version)
    if version:
        exchange(talk, token(b"n,,\x01auth=Bearer opaque\x01\x01"), verdict(REFUSED))
        exchange(talk, token(BEARER), verdict())
    else:
        exchange(talk, frame(b"n,,\x01auth=Bearer opaque\x01\x01"), frame(REFUSED))
        exchange(talk, frame(BEARER), frame(b""))
    assert user(talk) == "alice"
    assert counted(talk) == {("OAUTHBEARER", "known"): 1}


@pytest.mark.parametrize(
    ("mechanism", "tokens"),
    [("PLAIN", [(PLAIN, FAILED)]), ("SCRAM-SHA-256", [(FIRST, FAILED)]), ("GSSAPI", [(b"\x60gss", FAILED)])],
)
def test_refused_credentials_leave_nothing(mechanism: str, tokens: list[tuple[bytes, int]]) -> None:
    talk = shaken(mechanism)
    for sent, error in tokens:
        exchange(talk, token(sent), verdict(error=error))
    exchange(talk, token(PLAIN), verdict())  # belongs to no exchange
    assert user(talk) == "ANONYMOUS"
    assert counted(talk) == {(mechanism, "failed"): 1}


def test_scram_proof_that_is_wrong_leaves_nothing() -> None:
    talk = shaken("SCRAM-SHA-256")
    exchange(talk, token(FIRST), verdict(CHALLENGE))
    exchange(talk, token(FINAL), verdict(error=FAILED))
    assert user(talk) == "ANONYMOUS"


def test_scram_success_without_a_signature_is_none() -> None:
    talk = shaken("SCRAM-SHA-256")
    exchange(talk, token(FIRST), verdict(SIGNED))
    exchange(talk, token(FINAL), verdict(b"e=other-error"))
    assert user(talk) == "ANONYMOUS"


def test_mechanism_that_the_broker_refuses_leaves_nothing() -> None:
    talk = playbook()
    exchange(talk, handshake("PLAIN"), welcomed(error=33))
    exchange(talk, token(PLAIN), verdict())  # belongs to no exchange
    assert user(talk) == "ANONYMOUS"
    assert counted(talk) == {("PLAIN", "failed"): 1}


def test_token_without_a_handshake_names_no_user() -> None:
    talk = playbook()
    exchange(talk, token(PLAIN), verdict())
    assert user(talk) == "ANONYMOUS"


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
    assert user(talk) == ""
    assert counted(talk) == {(label, "unknown"): 1}


UNREAD = [("GSSAPI", [b"\x60gss"]), ("SCRAM-SHA-256", [b"n,,n=tokenid,r=x,tokenauth=true", FINAL])]


@pytest.mark.parametrize(("mechanism", "sent"), UNREAD)
def test_users_that_can_not_be_read_may_share_the_default_users_quota(
    mechanism: str, sent: list[bytes]
) -> None:
    talk = shaken(mechanism, channel=channel_machine(options=EngineOptions(unknown_users="default")))
    for data, response in zip(sent, [CHALLENGE, SIGNED], strict=False):
        exchange(talk, token(data), verdict(response))
    assert user(talk) == "<unknown>"


@pytest.mark.parametrize(("mechanism", "sent"), UNREAD)
def test_users_that_can_not_be_read_may_be_refused(mechanism: str, sent: list[bytes]) -> None:
    talk = shaken(mechanism, channel=channel_machine(options=EngineOptions(unknown_users="refuse")))
    if len(sent) > 1:
        exchange(talk, token(sent[0]), verdict(CHALLENGE))
    talk.asks(0, token(sent[-1]))
    talk.broker(0, verdict(SIGNED), Ends("unknown_user"))
    assert user(talk) == "ANONYMOUS"


@pytest.mark.parametrize("rule", ["none", "default", "refuse"])
def test_known_user_stays_known_after_an_unreadable_reauthentication(rule: UnknownUsers) -> None:
    talk = shaken("OAUTHBEARER", channel=channel_machine(options=EngineOptions(unknown_users=rule)))
    exchange(talk, token(BEARER), verdict())
    exchange(talk, handshake("OAUTHBEARER"), welcomed())
    exchange(talk, token(b"n,,\x01auth=Bearer opaque\x01\x01"), verdict())
    assert user(talk) == "alice"


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
    alice = shaken("PLAIN", channel=channel_machine(engine, gateway=False))
    exchange(alice, token(PLAIN), verdict())
    bob = shaken("PLAIN", channel=channel_machine(engine, gateway=False))
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
    assert user(talk) == "alice"
    assert (before.produce.flows, before.fetch.flows) == (0, 0)


def test_authenticating_again_as_the_same_keeps_the_identity() -> None:
    talk = shaken("PLAIN")
    exchange(talk, token(PLAIN), verdict())
    exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))
    quota = talk.engine.client("alice", "a", 1)
    assert quota.produce.flows == 1
    exchange(talk, handshake("PLAIN"), welcomed())
    exchange(talk, token(PLAIN), verdict())
    assert quota.produce.flows == 1


@pytest.mark.parametrize(("error", "expected"), [(FAILED, "alice"), (0, "bob")])
def test_authenticating_again_as_another_is_the_brokers_decision(error: int, expected: str) -> None:
    talk = shaken("PLAIN")
    exchange(talk, token(PLAIN), verdict())
    exchange(talk, handshake("PLAIN"), welcomed())
    exchange(talk, token(b"\0bob\0x"), verdict(error=error))
    assert user(talk) == expected


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
        talk = shaken("PLAIN", channel=channel_machine(producer_default=1000, gateway=False))
        exchange(talk, token(PLAIN), verdict(lifetime_ms=lifetime_ms))
        assert far_over(talk, now_ms) == muted_ms


def test_session_that_is_renewed_may_be_muted_again() -> None:
    talk = shaken("PLAIN", channel=channel_machine(producer_default=1000, gateway=False))
    exchange(talk, token(PLAIN), verdict(lifetime_ms=10_000))
    exchange(talk, handshake("PLAIN"), welcomed())
    talk.asks(8_500, token(PLAIN))
    talk.responds(8_500, verdict(lifetime_ms=10_000))
    assert far_over(talk, 8_500) == 9_000


def test_session_of_an_unreadable_user_ends_as_the_last_response_says() -> None:
    # Kafka tells 0 in every response but the last, and which one that is can not be read (GSSAPI: three tokens).
    talk = shaken("GSSAPI", channel=channel_machine(producer_default=1000, gateway=False))
    exchange(talk, token(b"\x60gss"), verdict(b"\x60"))
    exchange(talk, token(b""), verdict(b"\x05\x04"))
    exchange(talk, token(b"\x05\x04"), verdict(lifetime_ms=10_000))
    assert far_over(talk, 0) == 9_000
    assert (user(talk), counted(talk)) == ("", {("GSSAPI", "unknown"): 1})


def test_late_refusal_of_an_unreadable_user_is_counted() -> None:
    talk = shaken("GSSAPI")
    exchange(talk, token(b"\x60gss"), verdict(b"\x60"))
    asked = request(LIST_OFFSETS, 7, size=60)
    talk.client(0, token(b"") + asked, Pass(token(b"")), Wait(0))
    talk.responds(0, verdict(error=FAILED))
    assert user(talk) == ""
    assert counted(talk) == {("GSSAPI", "unknown"): 1, ("GSSAPI", "failed"): 1}


@pytest.mark.parametrize(("lifetime_ms", "hold_ms"), [(0, 15_000), (10_000, 500)])
def test_no_hold_is_long_in_a_short_session(lifetime_ms: int, hold_ms: int) -> None:
    options = EngineOptions(policy="schedule", hold_seconds_max=15)
    before = shaken("PLAIN", channel=channel_machine(producer_default=1000, options=options))
    exchange(before, token(PLAIN), verdict())
    before.orders("client", 0, produce(9, 100_000))
    talk = shaken("PLAIN", channel=channel_machine(before.engine))
    exchange(talk, token(PLAIN), verdict(lifetime_ms=lifetime_ms))
    assert talk.held_until(10, produce(9, 10_000, correlation_id=2)) == 10 + hold_ms


def test_cut_token_is_kept_until_it_is_whole() -> None:
    talk = shaken("PLAIN")
    sent = token(PLAIN)
    talk.client(0, sent[:30], More(len(sent)))
    talk.client(0, sent[30:], Pass(sent))


def test_token_larger_than_any_ends_the_connection() -> None:
    talk = shaken("PLAIN")
    talk.client(0, struct.pack(">ihhih", 2_000_000, SASL_AUTHENTICATE, 1, 1, -1), Ends("frame_length"))


@pytest.mark.parametrize(
    "sent", [request(SASL_HANDSHAKE, 2, b"\0\5PLAIN"), request(SASL_AUTHENTICATE, 3, b"\1")]
)
def test_version_that_is_not_known_ends_the_connection(sent: bytes) -> None:
    playbook().client(0, sent, Ends("unsupported_version"))


def test_token_behind_the_frames_end_is_malformed() -> None:
    shaken("PLAIN").client(0, request(SASL_AUTHENTICATE, 1, b"\0\0\1\0abc"), Ends("malformed"))


# Version 0 of the handshake: tokens without a header.


def test_bare_plain_token_names_its_user() -> None:
    talk = shaken("PLAIN", 0)
    exchange(talk, frame(PLAIN), frame(b""))
    assert user(talk) == "alice"
    exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))


def test_bare_token_that_looks_like_a_request_is_a_token() -> None:
    # Authorization id "", user "A", then a password: the bytes of API key 65, version 0.
    talk = shaken("PLAIN", 0)
    exchange(talk, frame(b"\0A\0\0\0\0\0\0\0\0\0"), frame(b""))
    assert user(talk) == "A"


def test_bare_tokens_of_scram() -> None:
    talk = shaken("SCRAM-SHA-512", 0)
    exchange(talk, frame(FIRST), frame(CHALLENGE))
    assert user(talk) == "ANONYMOUS"
    exchange(talk, frame(FINAL), frame(SIGNED))
    assert user(talk) == "alice"
    exchange(talk, request(LIST_OFFSETS, 7, size=60), some_response(30))


def test_bare_bearer_token_that_is_refused() -> None:
    talk = shaken("OAUTHBEARER", 0)
    exchange(talk, frame(BEARER), frame(REFUSED))
    talk.asks(0, frame(b"\x01"))
    talk.channel.close(0)
    assert user(talk) == "ANONYMOUS"
    assert counted(talk) == {("OAUTHBEARER", "failed"): 1}


def test_bare_tokens_of_gssapi_end_without_a_response() -> None:
    talk = shaken("GSSAPI", 0)
    exchange(talk, frame(b"\x60" + bytes(500)), frame(b"\x60" + bytes(100)))
    assert user(talk) == ""
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
    assert user(talk) == "alice"


@pytest.mark.parametrize("cut", [1, 3, 4, 10])
def test_cut_bare_token_is_kept_until_it_is_whole(cut: int) -> None:
    talk = shaken("PLAIN", 0)
    sent = frame(PLAIN)
    talk.client(0, sent[:cut], More(4 if cut < 4 else len(sent)))
    talk.client(0, sent[cut:], Pass(sent))


def test_cut_request_behind_bare_tokens_is_kept_until_it_can_be_told() -> None:
    talk = shaken("GSSAPI", 0)
    exchange(talk, frame(b"\x60" + bytes(500)), frame(b"\x60" + bytes(100)))
    asked = request(LIST_OFFSETS, 7, size=60)
    talk.client(0, asked[:6], More(14))
    talk.client(0, asked[6:], Pass(asked))


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


@pytest.mark.parametrize("data", [b"", b"x", b"xyz", b"xyza", b"xyzabcdef"])
@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 7])
def test_cut_bare_response_is_kept_until_it_is_whole(data: bytes, cut: int) -> None:
    talk = shaken("CUSTOM", 0)
    sent, response = frame(b"x"), frame(data)
    cut = min(cut, len(response) - 1)
    talk.asks(0, sent)
    if cut:
        needed = 4 if cut < 4 else min(len(response), 8) if cut < 8 else len(response)
        talk.broker(0, response[:cut], More(needed))
        talk.broker(0, response[cut:], Pass(response))
    else:
        talk.responds(0, response)
    assert not talk.owed


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


def test_negative_response_to_a_bare_token_ends_the_connection() -> None:
    talk = shaken("CUSTOM", 0)
    talk.asks(0, frame(b"x"))
    talk.broker(0, struct.pack(">i", -5) + bytes(8), Ends("broker_frame_length"))


@pytest.mark.parametrize("length", [-1, 2_000_000])
def test_bare_token_of_no_possible_length_ends_the_connection(length: int) -> None:
    talk = shaken("PLAIN", 0)
    talk.client(0, struct.pack(">i", length) + bytes(20), Ends("frame_length"))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        ("PLAIN", [(PLAIN, b"")]),
        ("SCRAM-SHA-256", [(FIRST, CHALLENGE), (FINAL, SIGNED)]),
        ("OAUTHBEARER", [(BEARER, b"")]),
        ("GSSAPI", [(SECRET, SECRET)]),
    ],
)
def test_no_secret_is_kept(mechanism: str, steps: list[tuple[bytes, bytes]], version: int) -> None:
    talk = shaken(mechanism, version)
    secrets = (SECRET, JWT, JWT.split(b".")[1], b"nonce", b"biws")
    for sent, response in steps:
        asked, said = (token(sent), verdict(response)) if version else (frame(sent), frame(response))
        talk.asks(0, asked)
        assert not [one for one in secrets if one in reachable(talk.channel)], "between token and verdict"
        talk.responds(0, said)
        assert not [one for one in secrets if one in reachable(talk.channel)]
