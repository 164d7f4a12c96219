"""Which clients get series, and that no counter falls."""

import random
from collections.abc import Iterable

from proxy.metrics.series import OTHER, PORTION, SERIES_PER_ROW, ClientSeries, Row, portions, rows_of
from quotas.throttles.figures import QuotaView


def view(client_id: str, total: int, kind: str = "Produce", **more: float | None) -> QuotaView:
    found = QuotaView("", client_id, kind, 0.0, None, total, total // 10, total // 100, 0, 0, 0.0)
    return found._replace(**more)  # type: ignore[arg-type]  # fields by name


def scrape(series: ClientSeries, views: Iterable[QuotaView]) -> list[Row]:
    views = list(views)
    series.begin()
    for portion in portions(views):
        series.weigh(portion)
    series.choose(frozenset(identity for _, identity in series.weights()))
    for portion in portions(views):
        series.take(portion)
    return series.rows()


def totals(rows: list[Row]) -> dict[str, int]:
    return {row.client_id: row.totals.bytes for row in rows}


def test_few_clients_all_have_rows_heaviest_first() -> None:
    rows = scrape(ClientSeries(5), [view("a", 10), view("b", 30), view("c", 20)])
    assert [row.client_id for row in rows] == ["b", "c", "a"]


def test_the_rest_is_summed() -> None:
    views = [view(f"c{n}", n, byte_rate=1.0, quota=5.0, debt_bytes=2.0) for n in range(1, 6)]
    rows = scrape(ClientSeries(2), views)
    assert totals(rows) == {"c5": 5, "c4": 4, OTHER: 1 + 2 + 3}
    rest = rows[-1]
    assert (rest.byte_rate, rest.quota, rest.debt_bytes) == (3.0, None, 6.0)


def test_each_type_has_its_own_rest() -> None:
    rows = scrape(ClientSeries(0), [view("a", 1), view("a", 2, kind="Fetch")])
    assert [(row.type, row.client_id, row.totals.bytes) for row in rows] == [
        ("Fetch", OTHER, 2),
        ("Produce", OTHER, 1),
    ]


def test_rows_stay_within_the_bound() -> None:
    for series_max in (0, 1, 16, 24, 100, 1000):
        views = [view(f"c{n}", n, kind=kind) for n in range(300) for kind in ("Produce", "Fetch")]
        rows = scrape(ClientSeries(rows_of(series_max)), views)
        assert len(rows) * SERIES_PER_ROW <= max(series_max, 2 * SERIES_PER_ROW)


def test_one_client_at_several_brokers_is_one_row() -> None:
    views = [view("a", 5, byte_rate=10.0, quota=20.0)._replace(broker=1)]
    views += [view("a", 7, byte_rate=30.0, quota=20.0)._replace(broker=2), view("b", 6)]
    rows = scrape(ClientSeries(2), views)
    assert totals(rows) == {"a": 12, "b": 6}
    assert (rows[0].byte_rate, rows[0].quota) == (
        30.0,
        20.0,
    )  # the busiest broker's, beside a quota that holds at each


def test_client_keeps_its_row_until_another_is_twice_as_heavy() -> None:
    series = ClientSeries(1)
    assert "a" in totals(scrape(series, [view("a", 100), view("b", 90)]))
    assert "a" in totals(scrape(series, [view("a", 100), view("b", 190)]))
    assert "b" in totals(scrape(series, [view("a", 100), view("b", 210)]))


def test_the_rest_never_falls_when_a_client_leaves_it_for_a_row() -> None:
    series = ClientSeries(1)
    assert totals(scrape(series, [view("a", 100), view("b", 90), view("c", 5)]))[OTHER] == 95
    assert totals(scrape(series, [view("a", 100), view("b", 300), view("c", 5)])) == {"b": 300, OTHER: 95}
    # c has moved 4 more; what a had counted in its own series is not counted again.
    assert totals(scrape(series, [view("a", 100), view("b", 300), view("c", 9)])) == {"b": 300, OTHER: 99}


def test_the_rest_never_falls_when_a_client_is_forgotten() -> None:
    series = ClientSeries(1)
    assert totals(scrape(series, [view("a", 100), view("b", 50)]))[OTHER] == 50
    assert totals(scrape(series, [view("a", 100)])) == {"a": 100, OTHER: 50}
    assert totals(scrape(series, [view("a", 100), view("c", 7)])) == {"a": 100, OTHER: 57}


def test_client_that_calls_itself_other_is_summed() -> None:
    assert totals(scrape(ClientSeries(5), [view(OTHER, 5), view("a", 1)])) == {"a": 1, OTHER: 5}


def test_no_counter_falls_over_many_scrapes() -> None:
    rng = random.Random(7)
    series, moved, seen = ClientSeries(4), dict.fromkeys(map(str, range(20)), 0), dict[str, int]()
    for _ in range(300):
        for name in rng.sample(sorted(moved), 5):
            moved[name] += rng.choice((1, 10, 1000))
        if rng.random() < 0.05:
            moved.pop(rng.choice(sorted(moved)))
            moved[f"new{rng.random()}"] = 0
        for name, total in totals(
            scrape(series, (view(name, total) for name, total in moved.items()))
        ).items():
            assert total >= seen.get(name, 0), name
            seen[name] = total


def test_scrape_that_was_left_half_way_is_forgotten() -> None:
    series = ClientSeries(5)
    series.begin()
    series.weigh([view("a", 1)])
    assert totals(scrape(series, [view("b", 2)])) == {"b": 2}


def test_portions_lose_nothing() -> None:
    views = [view(str(n), n) for n in range(2 * PORTION + 1)]
    cut = list(portions(iter(views)))
    assert [len(portion) for portion in cut] == [PORTION, PORTION, 1]
    assert [one for portion in cut for one in portion] == views
