"""Rows as columns: every value in its place, in the types that are published."""

from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.capture import COLUMNS, FRAME, SCHEMA_KEY
from proxy.capture import tables as module
from proxy.capture.tables import Naming, Tables, ids_without_name
from proxy.channel import Row
from quotas.throttles.topic_names import ASKED_AT_ONCE_MAX
from tests.unit.proxy.capture.rows import MONO_NS, ORIGIN, TOPIC_ID, batch, row

OFFSET_NS = 1_700_000_000_000_000_000


def tables() -> Tables:
    return Tables("run", {TOPIC_ID: "orders"}.get)


def converted(*rows: list[object]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = tables().convert(batch(*rows, wall_minus_mono_ns=OFFSET_NS)).to_pylist()
    return found


def test_schema_is_the_published_one() -> None:
    schema = tables().schema
    assert schema.names == [column.name for column in COLUMNS]
    assert schema.metadata == {SCHEMA_KEY.encode(): b"1"}
    assert str(schema.field("partitions").type).startswith("list<element: struct<topic: string not null")


def test_every_value_is_in_its_place() -> None:
    (found,) = converted(row(3, partitions=[(b"t", 4, 100, 2)]))
    assert found == {
        "wall_ms": (MONO_NS + 3000 + OFFSET_NS) // 1_000_000,
        "mono_us": (MONO_NS + 3000) // 1000,
        "process": "run",
        "connection": 7,
        "seq": 3,
        "principal": "alice",
        "client_id": "c",
        "ip": "10.0.0.1",
        "listener": "clients",
        "broker": 1,
        "api_key": 0,
        "api_version": 9,
        "request_bytes": 157,
        "response_bytes": 60,
        "upstream_us": 1500,
        "throttle_ms": 40,
        "delay_ms": 3,
        "quota": "produce",
        "mutations": 2,
        "partitions": [{"topic": "t", "partition": 4, "bytes": 100, "records": 2}],
    }


def test_rows_of_several_clients_keep_apart() -> None:
    other = ORIGIN._replace(connection=8, client_id="d", ip="::1")
    found = converted(row(0), row(1, origin=other), row(2))
    assert [entry["connection"] for entry in found] == [7, 8, 7]
    assert [entry["ip"] for entry in found] == ["10.0.0.1", "::1", "10.0.0.1"]


def test_missing_number_is_minus_one() -> None:
    without_response = row()
    without_response[Row.RESPONSE_BYTES], without_response[Row.UPSTREAM_NS] = -1, -1000
    (found,) = converted(without_response)
    assert (found["response_bytes"], found["upstream_us"]) == (-1, -1)


def test_ids_become_names_where_they_are_known() -> None:
    unknown = bytes(16)
    partitions = [(TOPIC_ID, 0, 1, 1), (unknown, 0, 1, 1)]
    (found,) = converted(row(version=13, partitions=partitions))
    names = [entry["topic"] for entry in found["partitions"]]  # type: ignore[attr-defined]  # a list
    assert names == ["orders", "00" * 16]
    found_in = batch(row(version=13, partitions=partitions))
    assert ids_without_name(found_in, {TOPIC_ID: "orders"}.get) == {unknown}


def test_topic_name_of_sixteen_bytes_is_not_taken_for_an_id() -> None:
    (found,) = converted(row(version=12, partitions=[(b"0123456789abcdef", 0, 1, 1)]))
    assert found["partitions"][0]["topic"] == "0123456789abcdef"  # type: ignore[index]  # a list


def test_text_that_is_not_utf8_is_escaped() -> None:
    (found,) = converted(row(origin=ORIGIN._replace(principal="\udc80", client_id="ü")))
    assert (found["principal"], found["client_id"]) == ("\\udc80", "ü")


def test_file_says_its_version_and_has_no_nulls(tmp_path: Path) -> None:
    made = tables()
    path = tmp_path / "x.parquet"
    with path.open("wb") as file:
        writer = made.writer(file)
        writer.write_table(made.concatenate([made.convert(batch(row(), wall_minus_mono_ns=OFFSET_NS))]))
        writer.close()
    read = pq.read_table(path)
    assert read.schema.metadata[SCHEMA_KEY.encode()] == b"1"
    assert not any(field.nullable for field in read.schema)
    assert read.schema.field("api_key").type == pa.int16()


def test_frames_are_a_column_more_where_they_are_kept() -> None:
    made = Tables("run", lambda _id: None, frames=True)
    rows = [[*row(0), bytes(157 + 4)], [*row(1), b"half"], [*row(2), b""]]
    found = made.convert(batch(*rows))
    assert found.schema.names == [*(column.name for column in COLUMNS), FRAME.name]
    assert found[FRAME.name].to_pylist() == [bytes(161), b"", b""]


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
