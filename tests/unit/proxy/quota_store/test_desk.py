"""proxy.quota_store.desk: requests on the loop, answers later on the loop, one after another, bounded."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.errors import WireError
from protocol.header import body_start
from protocol.messages import client_quotas_calls
from proxy.channel import PeerError, Question, Shared
from proxy.config import QuotaSettings
from proxy.errors import ConfigError
from proxy.files import signature
from proxy.quota_store import QuotaDesk, QuotaStore
from proxy.quota_store import desk as module
from proxy.stats import Stats
from quotas.entities import Entity

ANN = Entity("ann")
RATE = "producer_byte_rate"
SECONDS_MAX = 20.0


class Office:
    """A desk, and what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = QuotaSettings(file=path)
        self.store = QuotaStore(self.settings)
        self.stats = Stats()
        self.events: list[str] = []
        self.desk = QuotaDesk(
            asyncio.get_running_loop(),
            self.store,
            self.settings,
            self.stats,
            lambda: self.events.append("altered"),
        )

    async def ask(self, question: Question) -> bytes | bytearray | Shared | Exception:
        """Ask, and wait for the answer."""
        answered: asyncio.Future[bytes | bytearray | Shared | Exception] = (
            asyncio.get_running_loop().create_future()
        )

        def take(answer: bytes | bytearray | Shared | Exception) -> None:
            self.events.append("answered")
            answered.set_result(answer)

        self.desk.ask(question, take)
        assert not answered.done(), "never at once"
        async with asyncio.timeout(SECONDS_MAX):
            return await answered


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    path = tmp_path / "quotas.toml"
    path.write_text("")
    made = Office(path)
    yield made
    made.desk.close()


def alteration(rate: float | None, *, user: str = "ANONYMOUS", trusted: bool = True) -> Question:
    frame = client_quotas_calls.alter_request(
        [([("user", "ann")], [(RATE, rate)])], validate_only=False, correlation_id=1, client_id="c"
    )
    start = body_start(frame, 0, len(frame), 49, 0)
    assert start is not None
    return Question(49, 0, 1, frame, start, user, trusted)


def code(answer: bytes | bytearray | Shared | Exception) -> int:
    assert not isinstance(answer, Exception), repr(answer)
    ((_, found, _),) = client_quotas_calls.read_alter_answer(bytes(answer), 0)
    return found


async def test_quotas_are_in_force_before_who_altered_them_is_answered(office: Office) -> None:
    assert code(await office.ask(alteration(5.0))) == 0
    assert office.events == ["altered", "answered"]
    assert office.store.definitions.values(ANN) == {RATE: 5}
    assert office.desk.seen == signature(office.path)
    assert office.stats.quota_requests == {"altered": 1}


async def test_nobody_is_told_of_what_did_not_change(office: Office) -> None:
    assert code(await office.ask(alteration(None))) == 0
    assert code(await office.ask(alteration(-1.0))) == 42
    assert office.events == ["answered", "answered"]
    assert office.stats.quota_requests == {"altered": 1, "refused": 1}


async def test_alterations_at_the_same_time_are_done_one_after_another(office: Office) -> None:
    answers = await asyncio.gather(*(office.ask(alteration(float(rate))) for rate in range(1, 21)))
    assert {code(answer) for answer in answers} == {0}
    assert office.store.definitions.values(ANN) == {RATE: 20}
    assert office.path.read_text().count("[[quota]]") == 1


async def test_malformed_request_is_given_back_as_the_peers_error(office: Office) -> None:
    asked = alteration(5.0)
    assert isinstance(await office.ask(asked._replace(frame=asked.frame[:-1])), WireError)
    assert office.stats.quota_requests == {"malformed": 1}


async def test_bug_of_ours_ends_one_request(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(module, "answer", broken)
    assert isinstance(await office.ask(alteration(5.0)), AssertionError)
    assert office.stats.quota_requests == {"failed": 1}


@pytest.mark.parametrize("limit", ["REQUESTS_MAX", "BYTES_MAX"])
async def test_too_many_requests_are_not_kept(
    office: Office, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(module, limit, 0)
    error = await office.ask(alteration(5.0))
    assert isinstance(error, PeerError)
    assert error.cause == "quota_requests_max"
    monkeypatch.undo()
    assert code(await office.ask(alteration(5.0))) == 0


async def test_permissions_change_with_the_settings(office: Office) -> None:
    asked = alteration(5.0, user="eve", trusted=False)
    assert code(await office.ask(asked)) == 31
    await office.desk.read(QuotaSettings(file=office.path, alter_principals=("eve",)))
    assert code(await office.ask(asked)) == 0


async def test_file_is_read_again(office: Office) -> None:
    office.path.write_text('[[quota]]\nip = "nowhere"\nconnection_creation_rate = 5\n')
    definitions, idle = await office.desk.read(office.settings)
    assert len(definitions) == 1
    assert ["nowhere" in one for one in idle] == [True]
    office.path.write_text("[")
    with pytest.raises(ConfigError):
        await office.desk.read(office.settings)
    assert len(definitions) == 1


async def test_process_that_ends_answers_nobody(office: Office) -> None:
    for _ in range(5):
        office.desk.ask(alteration(5.0), lambda _: None)
    office.desk.close()
    await asyncio.sleep(0.1)
