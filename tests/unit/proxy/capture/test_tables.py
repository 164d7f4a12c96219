"""Rows as columns: every value in its place, in the types that are published."""

from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.api import FETCH, METADATA, PRODUCE
from protocol.capture import CLASS, COLUMNS, FRAME, SCHEMA_KEY
from proxy.capture import tables as module
from proxy.capture.tables import Naming, Tables, ids_without_name
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.throttles.topic_names import ASKED_AT_ONCE_MAX
from tests.unit.proxy.capture.rows import ORIGIN, TOPIC_ID, batch, row


def test_ids_without_a_name_are_found() -> None:
    unknown = bytes(16)
    partitions = [(TOPIC_ID, 0, 1, 1), (unknown, 0, 1, 1)]
    found = batch(row(version=13, partitions=partitions))
    assert ids_without_name(found, {TOPIC_ID: "orders"}.get) == {unknown}


@pytest.mark.parametrize("frames", [False, True])
def test_file_has_the_published_schema_and_no_nulls(tmp_path: Path, frames: bool) -> None:
    made = Tables("run", {TOPIC_ID: "orders"}.get, Definitions().limit, frames=frames)
    path = tmp_path / "x.parquet"
    with path.open("wb") as file:
        writer = made.writer(file)
        writer.write_table(made.concatenate([made.convert(batch([*row(), b""] if frames else row()))]))
        writer.close()
    schema = pq.read_table(path).schema
    assert schema.metadata[SCHEMA_KEY.encode()] == b"1"
    assert schema.names == [column.name for column in (*COLUMNS, CLASS, *[FRAME][: int(frames)])]
    assert not any(field.nullable for field in schema)
    assert schema.field("api_key").type == pa.int16()
    assert str(schema.field("partitions").type).startswith("list<element: struct<topic: string not null")


def test_class_is_the_bucket_of_the_quota_in_force() -> None:
    quotas = Definitions(
        {
            Entity(client_id="web-*", group="web"): {"member": 1},
            Entity(group="web"): {"producer_byte_rate": 5},
            Entity("ann"): {"consumer_byte_rate": 5},
        }
    )
    made = Tables("run", lambda _: None, quotas.limit)
    origins = [ORIGIN._replace(principal="ann", client_id=name) for name in ("web-1", "etl")]
    rows = [row(origin=origin) for origin in origins for _ in range(3)]
    for number, each in enumerate(rows):
        each[0] = (157, (PRODUCE, FETCH, METADATA)[number % 3], 9, 9, 1)
    found = made.convert(batch(*rows)).column(CLASS.name).to_pylist()
    assert found == ["g=:web", "3-:ann", "", "-=:etl", "3-:ann", ""]


STEP = module.STEP_SECONDS


class World:
    """A clock, a cluster that responds when it is told to, and a queue.

    Attributes:
        now: moves with every sleep.
        later: what happens then.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.names: dict[bytes, str] = {}
        self.asked: list[set[bytes]] = []
        self.waiting = 0
        self.later: Callable[[], None] = lambda: None
        self.naming = Naming(self.known, self.ask, lambda: self.waiting)

    def known(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)

    def ask(self, topic_ids: Collection[bytes]) -> None:
        self.asked.append(set(topic_ids))

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.later()

    def find(self, *topics: int) -> float:
        """Seconds that were waited for a batch with these topics."""
        before = self.now
        partitions = [(topic_id(topic), 0, 1, 1) for topic in topics]
        self.naming.resolve(batch(row(version=13, partitions=partitions)))
        return self.now - before


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "time", made)
    return made


def test_response_ends_the_wait(world: World) -> None:
    world.later = lambda: world.names.update({topic_id(1): "a"})
    assert world.find(1) == pytest.approx(STEP)
    assert world.find(1) == 0
    assert world.asked == [{topic_id(1)}]


def test_id_without_a_name_is_asked_for_with_every_batch_and_waited_for_once(world: World) -> None:
    assert world.find(1) == pytest.approx(module.SECONDS_MAX, abs=STEP)
    world.now += module.RETRY_SECONDS
    assert [world.find(1), world.find(1)] == [0, 0]
    assert world.asked == [{topic_id(1)}] * 3


def test_unknown_ids_delay_few_batches(world: World) -> None:
    waited = 0.0
    for number in range(100):
        waited += world.find(number)
        world.now += 0.5
    # 100 batches in 50 s and what was waited: at its begin, and once more 30 s later.
    assert waited == pytest.approx(2 * module.SECONDS_MAX, abs=2 * STEP)
    assert len(world.asked) == 100


def test_rows_that_pile_up_end_the_wait(world: World) -> None:
    def arrive() -> None:
        world.waiting += 1

    world.later = arrive
    assert world.find(1) == pytest.approx(STEP * (module.BACKLOG_MAX + 1))
    world.now += module.RETRY_SECONDS
    assert world.find(2) == 0
    assert world.asked[-1] == {topic_id(2)}


def test_oldest_id_that_was_waited_for_is_waited_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAITED_MAX", 2)
    for topic in (1, 2, 3):
        world.find(topic)
        world.now += module.RETRY_SECONDS
    assert [world.find(3), world.find(2)] == [0, 0]
    assert world.find(1) == pytest.approx(module.SECONDS_MAX, abs=STEP)


def test_question_has_no_more_ids_than_are_asked_for_at_once(world: World) -> None:
    world.find(*range(ASKED_AT_ONCE_MAX + 500))
    assert len(world.asked[0]) == ASKED_AT_ONCE_MAX
