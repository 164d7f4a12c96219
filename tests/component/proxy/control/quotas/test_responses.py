"""proxy.control.quotas.responses: requests' frames in, responses out, with Kafka's codes."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_client import quotas
from kafka_client.quotas import QuotaEntities
from protocol.api import DESCRIBE_CLIENT_QUOTAS
from protocol.errors import WireError
from protocol.header import body_start
from protocol.messages.client_quotas import Alteration, Component
from proxy.channel import ANONYMOUS, Question, SharedResponse
from proxy.config import QuotaSettings
from proxy.control.quotas import FileStore
from proxy.control.quotas.responses import LINES_MAX, Permissions, Response, Unread, audit, handle_request
from proxy.system.logs import AUDIT, FIELDS
from quotas.definitions.alterations import Alteration as AlterationAudit
from quotas.definitions.entities import Entity
from tests.support.quota_frames import alter_request, describe_request

RATE = "producer_byte_rate"
USER = (("user", "ann"),)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    path = tmp_path / "quotas.toml"
    path.write_text(
        '[[quota]]\nuser = "ann"\nproducer_byte_rate = 1000\n[[quota]]\nuser="bob"\nrequest_percentage=1.5\n'
    )
    return FileStore(QuotaSettings(file=path))


def question(frame: bytes, version: int, *, trusted: bool = True) -> Question:
    key = int.from_bytes(frame[4:6], "big")
    start = body_start(frame, 0, len(frame), key, version)
    assert start is not None
    return Question(key, version, 5, frame, start, "eve", trusted)


def describe(*components: Component, strict: bool = True, version: int = 1, trusted: bool = True) -> Question:
    frame = describe_request(components, strict=strict, correlation_id=5, client_id="c", version=version)
    return question(frame, version, trusted=trusted)


def alter(
    *alterations: Alteration, validate_only: bool = False, version: int = 1, trusted: bool = True
) -> Question:
    frame = alter_request(
        alterations, validate_only=validate_only, correlation_id=5, client_id="c", version=version
    )
    return question(frame, version, trusted=trusted)


def described(made: Response, version: int = 1) -> tuple[int, str | None, dict[object, dict[str, float]]]:
    found = QuotaEntities(version, bytes(made.frame))
    return found.error_code, found.error_message, dict(found)


def results(made: Response, version: int = 1) -> list[tuple[Sequence[object], int, str | None]]:
    return list(quotas.alter([], validate_only=False, version=version).read(bytes(made.frame)))


def handled(store: FileStore, question: Question, unread: Unread | None = None) -> Response:
    """The response to a client whom no principal's permission covers."""
    return handle_request(
        store, Permissions(frozenset(), frozenset()), question, Unread() if unread is None else unread
    )


@pytest.mark.parametrize("version", [0, 1])
def test_described_quotas_are_in_the_response(store: FileStore, version: int) -> None:
    made = handled(store, describe(("user", 0, "ann"), version=version))
    assert made[1:] == ("described", False)
    assert described(made, version) == (0, None, {USER: {RATE: 1000.0}})
    assert int.from_bytes(bytes(made.frame)[4:8], "big") == 5
    every = described(handled(store, describe(strict=False, version=version)), version)
    assert every[2] == {USER: {RATE: 1000.0}, (("user", "bob"),): {"request_percentage": 1.5}}


def rest_of(made: Response) -> object:
    """The object that responses may share."""
    assert isinstance(made.frame, SharedResponse)
    return made.frame.rest.obj


def test_unread_responses_to_equal_requests_are_in_memory_once(store: FileStore) -> None:
    unread = Unread()
    asked = describe(strict=False)
    first, second = (handled(store, asked._replace(correlation_id=number), unread) for number in (1, -2))
    assert rest_of(first) is rest_of(second)
    assert bytes(first.frame)[4:8] == b"\0\0\0\1"
    assert bytes(second.frame)[4:8] == b"\xff\xff\xff\xfe"
    assert described(first) == described(second)
    others = describe(strict=True), describe(("user", 0, "ann")), describe(version=0)
    assert (
        len({id(rest_of(one)) for one in [first, *(handled(store, other, unread) for other in others)]}) == 4
    )
    assert len(unread) == 1
    del first, second
    assert len(unread) == 0, "they have been read"


def test_changed_quotas_are_described_anew(store: FileStore) -> None:
    unread = Unread()
    before = handled(store, describe(("user", 0, "ann")), unread)
    handled(store, alter((USER, ((RATE, 5.0),))), unread)
    after = handled(store, describe(("user", 0, "ann")), unread)
    assert described(before)[2] != described(after)[2] == {USER: {RATE: 5.0}}


@pytest.mark.parametrize(("component", "code"), [(("user", 0, None), 42), (("team", 2, None), 35)])
def test_impossible_filter_is_refused(store: FileStore, component: Component, code: int) -> None:
    made = handled(store, describe(component))
    assert described(made)[0] == code
    assert made.result == "refused"


def test_unauthorized_description_is_refused(store: FileStore) -> None:
    made = handled(store, describe(strict=False, trusted=False))
    code, message, entities = described(made)
    assert (code, entities, made.result) == (31, {}, "refused")
    assert "'eve' is not in [quotas] describe_principals" in str(message)


@pytest.mark.parametrize("version", [0, 1])
def test_altered_quota_is_in_the_response_and_in_force(store: FileStore, version: int) -> None:
    wanted, wrong = (USER, ((RATE, 5.0),)), ((("user", ""),), ((RATE, 5.0),))
    made = handled(store, alter(wanted, validate_only=True, version=version))
    assert (made[1:], results(made, version)) == (("altered", False), [(USER, 0, None)])
    assert store.definitions.values(Entity("ann")) == {RATE: 1000}
    made = handled(store, alter(wanted, wrong, version=version))
    assert made[1:] == ("refused", True)
    assert results(made, version) == [(USER, 0, None), ((("user", ""),), 42, "Empty user not supported")]
    assert store.definitions.values(Entity("ann")) == {RATE: 5}
    for nothing in (alter(), alter(wanted)):
        assert handled(store, nothing)[1:] == ("altered", False)


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        ("eve", 'To allow it, add "eve" to alter_principals under [quotas] in Sluice\'s configuration file.'),
        (ANONYMOUS, "Log in as a user that alter_principals names, or connect on Sluice's own machine"),
    ],
)
def test_unauthorized_alteration_is_refused_and_names_the_key_to_set_once(
    store: FileStore, user: str, advice: str
) -> None:
    asked = alter((USER, ((RATE, 5.0),)), ((("user", "bob"),), ((RATE, 5.0),)), trusted=False)
    made = handled(store, asked._replace(user=user))
    first, second = results(made)
    assert (first[:2], made.result) == ((USER, 31), "refused")
    assert advice in str(first[2])
    assert user != ANONYMOUS or "add" not in str(first[2]), "all clients that have not logged in"
    assert second[2] == f"Cluster authorization failed: {user!r} is not in [quotas] alter_principals."
    assert store.definitions.values(Entity("ann")) == {RATE: 1000}


def test_refusal_repeats_little_of_a_long_principal(store: FileStore) -> None:
    asked = alter(*([((), ())] * 10_000), trusted=False)._replace(user="x" * 1000)
    assert len(bytes(handled(store, asked).frame)) < 10_000 * 150


def test_alteration_without_a_file_tells_the_reason() -> None:
    made = handled(FileStore(QuotaSettings()), alter((USER, ((RATE, 5.0),))))
    ((_, code, message),) = results(made)
    assert (code, made.result, made.altered) == (56, "failed", False)
    assert "no quotas file is configured" in str(message)
    assert "start sluice serve with --quotas-file FILE" in str(message)


def test_member_of_a_fleet_refuses_to_alter_its_file_and_names_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text('[[quota]]\nuser = "ann"\nproducer_byte_rate = 1000\n')
    store = FileStore(QuotaSettings(file=path), in_fleet=True)
    entity = (USER, ((RATE, 5.0),))
    for validate_only in (False, True):
        made = handled(store, alter(entity, entity, validate_only=validate_only))
        first, second = results(made)
        assert first == second
        assert (first[1], made.result, made.altered) == (44, "refused", False)
        assert '[quotas] store = "file"' in str(first[2])
        assert 'set store = "topic", or change the file at every member' in str(first[2])
    assert described(handled(store, describe(("user", 0, "ann"))))[2] == {USER: {RATE: 1000.0}}
    path.write_text('[[quota]]\nuser = "ann"\nproducer_byte_rate = 7\n')
    store.read(QuotaSettings(file=path))
    assert store.definitions.values(Entity("ann")) == {RATE: 7}


def test_principal_without_permission_does_not_learn_where_quotas_are() -> None:
    store = FileStore(QuotaSettings(file=None), in_fleet=True)
    made = handled(store, alter((USER, ((RATE, 5.0),)), trusted=False))
    assert [code for _, code, _ in results(made)] == [31]


def test_long_names_make_no_message_that_can_not_be_written(store: FileStore) -> None:
    kind = "x" * 32_767
    assert len(str(results(handled(store, alter((((kind, "a"),), ()))))[0][2])) == 1000
    assert len(str(described(handled(store, describe((kind, 0, "a"))))[1])) == 1000


def test_cut_request_changes_nothing(store: FileStore) -> None:
    asked = alter((USER, ((RATE, 5.0),)), ((("user", "bob"),), ((RATE, 5.0),)))
    with pytest.raises(WireError):
        handled(store, asked._replace(frame=asked.frame[:-3]))
    assert store.definitions.values(Entity("ann")) == {RATE: 1000}
    with pytest.raises(WireError):
        handled(store, asked._replace(api_key=DESCRIBE_CLIENT_QUOTAS, frame=asked.frame[:-3]))


WHO = {"principal": "ops", "address": "10.0.0.4:51000"}
REPORTS = (("client-id", "reports"),)


def lines(
    caplog: pytest.LogCaptureFixture, directory: Path, *alterations: AlterationAudit
) -> list[tuple[str, dict[str, object]]]:
    """Alter the quotas of a file, and give what the audit log says: message, fields."""
    path = directory / "quotas.toml"
    path.write_text('[[quota]]\nclient_id = "reports"\nproducer_byte_rate = "2M"\nrequest_percentage = 5\n')
    store = FileStore(QuotaSettings(file=path))
    outcome = store.alter(alterations, validate_only=False)
    with caplog.at_level(logging.INFO, AUDIT):
        audit(
            Question(49, 1, 1, b"", 0, "ops", False, peer="10.0.0.4:51000"), outcome, len(store.definitions)
        )
    return [(record.message, vars(record)[FIELDS]) for record in caplog.records if record.name == AUDIT]


def test_changed_quota_has_entity_old_new_principal_and_address(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    changed, in_all = lines(
        caplog, tmp_path, (REPORTS, [("producer_byte_rate", 4e6), ("consumer_byte_rate", 9)])
    )
    change = "producer_byte_rate: 2000000 -> 4000000, consumer_byte_rate: none -> 9"
    assert changed == ("quota altered", {"entity": "client-id 'reports'", "change": change, **WHO})
    assert in_all == ("quotas altered", {"entities": 1, "quota_entries": 1, **WHO})


def test_removed_and_new_entities_have_none_at_one_end(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    found = lines(
        caplog,
        tmp_path,
        (REPORTS, [("producer_byte_rate", None), ("request_percentage", None)]),
        ((("user", None),), [("consumer_byte_rate", 7.0)]),
    )
    assert [fields["change"] for _, fields in found[:2]] == [
        "producer_byte_rate: 2000000 -> none, request_percentage: 5.0 -> none",
        "consumer_byte_rate: none -> 7",
    ]
    assert [fields["entity"] for _, fields in found[:2]] == ["client-id 'reports'", "user <default>"]


def test_lines_of_one_request_are_bounded_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    many: list[AlterationAudit] = [((("user", f"u{n}"),), [(RATE, 5.0)]) for n in range(LINES_MAX + 3)]
    refused: AlterationAudit = REPORTS, [(RATE, -1.0)]
    *listed, rest, in_all = lines(caplog, tmp_path, *many, refused)
    assert len(listed) == LINES_MAX
    assert rest == ("quotas altered, not listed", {"entities": 3, **WHO})
    assert in_all[1]["entities"] == LINES_MAX + 3
