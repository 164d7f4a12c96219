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
NO_PERMISSIONS = Permissions(frozenset(), frozenset())
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


@pytest.mark.parametrize("version", [0, 1])
def test_described_quotas_are_in_the_response(store: FileStore, version: int) -> None:
    made = handle_request(store, NO_PERMISSIONS, describe(("user", 0, "ann"), version=version))
    assert made[1:] == ("described", False)
    assert described(made, version) == (0, None, {USER: {RATE: 1000.0}})
    assert int.from_bytes(bytes(made.frame)[4:8], "big") == 5


def rest_of(made: Response) -> object:
    """The object that responses may share."""
    assert isinstance(made.frame, SharedResponse)
    return made.frame.rest.obj


def test_unread_responses_to_equal_requests_are_in_memory_once(store: FileStore) -> None:
    unread = Unread()
    asked = describe(strict=False)
    first, second = (
        handle_request(store, NO_PERMISSIONS, asked._replace(correlation_id=number), unread)
        for number in (1, -2)
    )
    assert rest_of(first) is rest_of(second)
    assert bytes(first.frame)[4:8] == b"\0\0\0\1"
    assert bytes(second.frame)[4:8] == b"\xff\xff\xff\xfe"
    assert described(first) == described(second)


def test_responses_to_other_requests_are_not_shared(store: FileStore) -> None:
    unread = Unread()
    asked = (describe(strict=False), describe(strict=True), describe(("user", 0, "ann")), describe(version=0))
    made = [handle_request(store, NO_PERMISSIONS, question, unread) for question in asked]
    assert len({id(rest_of(one)) for one in made}) == 4


def test_changed_quotas_are_described_anew(store: FileStore) -> None:
    unread = Unread()
    before = handle_request(store, NO_PERMISSIONS, describe(("user", 0, "ann")), unread)
    handle_request(store, NO_PERMISSIONS, alter((USER, ((RATE, 5.0),))), unread)
    after = handle_request(store, NO_PERMISSIONS, describe(("user", 0, "ann")), unread)
    assert described(before)[2] != described(after)[2] == {USER: {RATE: 5.0}}


def test_responses_that_were_read_are_not_kept(store: FileStore) -> None:
    unread = Unread()
    made = handle_request(store, NO_PERMISSIONS, describe(strict=False), unread)
    assert len(unread) == 1
    del made
    assert len(unread) == 0


def test_description_without_a_filter_has_every_entity(store: FileStore) -> None:
    made = handle_request(store, NO_PERMISSIONS, describe(strict=False))
    assert described(made)[2] == {USER: {RATE: 1000.0}, (("user", "bob"),): {"request_percentage": 1.5}}


@pytest.mark.parametrize(("component", "code"), [(("user", 0, None), 42), (("group", 2, None), 35)])
def test_impossible_filter_is_refused(store: FileStore, component: Component, code: int) -> None:
    made = handle_request(store, NO_PERMISSIONS, describe(component))
    assert described(made)[0] == code
    assert made.result == "refused"


def test_unauthorized_description_is_refused(store: FileStore) -> None:
    made = handle_request(store, NO_PERMISSIONS, describe(strict=False, trusted=False))
    code, message, entities = described(made)
    assert (code, entities, made.result) == (31, {}, "refused")
    assert "'eve' is not in [quotas] describe_principals" in str(message)


@pytest.mark.parametrize("version", [0, 1])
def test_altered_quota_is_in_the_response_and_in_force(store: FileStore, version: int) -> None:
    made = handle_request(store, NO_PERMISSIONS, alter((USER, ((RATE, 5.0),)), version=version))
    assert made[1:] == ("altered", True)
    assert results(made, version) == [(USER, 0, None)]
    assert store.definitions.values(Entity("ann")) == {RATE: 5}


def test_empty_alteration_changes_nothing(store: FileStore) -> None:
    assert handle_request(store, NO_PERMISSIONS, alter())[1:] == ("altered", False)
    assert handle_request(store, NO_PERMISSIONS, alter((USER, ((RATE, 1000.0),))))[1:] == ("altered", False)


def test_alteration_that_is_only_validated(store: FileStore) -> None:
    made = handle_request(store, NO_PERMISSIONS, alter((USER, ((RATE, 5.0),)), validate_only=True))
    assert made[1:] == ("altered", False)
    assert results(made) == [(USER, 0, None)]
    assert store.definitions.values(Entity("ann")) == {RATE: 1000}


def test_each_entity_of_an_alteration_has_its_own_result(store: FileStore) -> None:
    made = handle_request(
        store, NO_PERMISSIONS, alter((USER, ((RATE, 5.0),)), ((("user", ""),), ((RATE, 5.0),)))
    )
    assert made[1:] == ("refused", True)
    assert results(made) == [(USER, 0, None), ((("user", ""),), 42, "Empty user not supported")]


def test_unauthorized_alteration_is_refused(store: FileStore) -> None:
    made = handle_request(store, NO_PERMISSIONS, alter((USER, ((RATE, 5.0),)), trusted=False))
    ((parts, code, message),) = results(made)
    assert (parts, code, made.result) == (USER, 31, "refused")
    assert "'eve' is not in [quotas] alter_principals" in str(message)
    assert store.definitions.values(Entity("ann")) == {RATE: 1000}


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        ("eve", 'To allow it, add "eve" to alter_principals under [quotas] in Sluice\'s configuration file.'),
        (ANONYMOUS, "Log in as a user that alter_principals names, or connect on Sluice's own machine"),
    ],
)
def test_refusal_names_the_key_to_set_once(store: FileStore, user: str, advice: str) -> None:
    asked = alter((USER, ((RATE, 5.0),)), ((("user", "bob"),), ((RATE, 5.0),)), trusted=False)
    first, second = results(handle_request(store, NO_PERMISSIONS, asked._replace(user=user)))
    assert advice in str(first[2])
    assert second[2] == f"Cluster authorization failed: {user!r} is not in [quotas] alter_principals."


def test_client_that_has_not_logged_in_is_never_advised_to_let_all_others_in(store: FileStore) -> None:
    asked = alter((USER, ((RATE, 5.0),)), trusted=False)._replace(user=ANONYMOUS)
    ((_, _, message),) = results(handle_request(store, NO_PERMISSIONS, asked))
    assert "add" not in str(message)


def test_refusal_repeats_little_of_a_long_principal(store: FileStore) -> None:
    asked = alter(*([((), ())] * 10_000), trusted=False)._replace(user="x" * 1000)
    assert len(bytes(handle_request(store, NO_PERMISSIONS, asked).frame)) < 10_000 * 150


def test_alteration_without_a_file_tells_the_reason() -> None:
    made = handle_request(FileStore(QuotaSettings()), NO_PERMISSIONS, alter((USER, ((RATE, 5.0),))))
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
        made = handle_request(store, NO_PERMISSIONS, alter(entity, entity, validate_only=validate_only))
        first, second = results(made)
        assert first == second
        assert (first[1], made.result, made.altered) == (44, "refused", False)
        assert '[quotas] store = "file"' in str(first[2])
        assert 'set store = "topic", or change the file at every member' in str(first[2])
    assert described(handle_request(store, NO_PERMISSIONS, describe(("user", 0, "ann"))))[2] == {
        USER: {RATE: 1000.0}
    }
    path.write_text('[[quota]]\nuser = "ann"\nproducer_byte_rate = 7\n')
    store.read(QuotaSettings(file=path))
    assert store.definitions.values(Entity("ann")) == {RATE: 7}


def test_principal_without_permission_does_not_learn_where_quotas_are(tmp_path: Path) -> None:
    made = handle_request(
        FileStore(QuotaSettings(file=None), in_fleet=True),
        NO_PERMISSIONS,
        alter((USER, ((RATE, 5.0),)), trusted=False),
    )
    assert [code for _, code, _ in results(made)] == [31]


def test_long_names_make_no_message_that_can_not_be_written(store: FileStore) -> None:
    kind = "x" * 32_767
    assert len(str(results(handle_request(store, NO_PERMISSIONS, alter((((kind, "a"),), ()))))[0][2])) == 1000
    assert len(str(described(handle_request(store, NO_PERMISSIONS, describe((kind, 0, "a"))))[1])) == 1000


def test_cut_request_changes_nothing(store: FileStore) -> None:
    asked = alter((USER, ((RATE, 5.0),)), ((("user", "bob"),), ((RATE, 5.0),)))
    with pytest.raises(WireError):
        handle_request(store, NO_PERMISSIONS, asked._replace(frame=asked.frame[:-3]))
    assert store.definitions.values(Entity("ann")) == {RATE: 1000}
    with pytest.raises(WireError):
        handle_request(
            store, NO_PERMISSIONS, asked._replace(api_key=DESCRIBE_CLIENT_QUOTAS, frame=asked.frame[:-3])
        )


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


def test_refused_alterations_are_not_audited(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (in_all,) = lines(caplog, tmp_path, (REPORTS, [("producer_byte_rate", -1.0)]))
    assert in_all[1]["entities"] == 0


def test_lines_of_one_request_are_bounded_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    many: list[AlterationAudit] = [
        ((("user", f"u{n}"),), [("producer_byte_rate", 5.0)]) for n in range(LINES_MAX + 3)
    ]
    *listed, rest, in_all = lines(caplog, tmp_path, *many)
    assert len(listed) == LINES_MAX
    assert rest == ("quotas altered, not listed", {"entities": 3, **WHO})
    assert in_all[1]["entities"] == LINES_MAX + 3
