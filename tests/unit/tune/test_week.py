"""A family's days as requests in shorter days, and the bars of `make week`."""

import numpy as np
import pytest

from protocol.api import FETCH
from tests.tune.week import CLIENTS, DAYS, Chosen, Client, Judged, Week, by_second, outcome, requests, week

READER = Client("reader", Chosen("steady", 0, 0.0, 1000, produces=False), np.repeat([20e3, 0, 5e3], 10), None)
HOG = Client("hog", Chosen("hog", 0, 0.0), np.zeros(0), hog_from_s=55.0)


def judged(client: Client, *waits_ms: int, passed: float = 0.2e6, errors: int = 0) -> Judged:
    predicted_ms, observed_ms = waits_ms
    return Judged(
        client, 1e3, 1e3, 1e3, 2e3, "high", predicted_ms, observed_ms, asked=1e6, passed=passed, errors=errors
    )


def test_days_are_shorter_and_rates_are_not_higher() -> None:
    clients = week(CLIENTS, 20, 11)
    assert [len(client.sizes) for client in clients] == [DAYS * 20] * len(CLIENTS)
    # The mean of days 1 to 5 is the stated rate in bytes/s, whatever the length of a day.
    assert [client.sizes[:100].mean() for client in clients] == pytest.approx([each.rate for each in CLIENTS])


def test_a_producer_and_a_consumer_become_hogs_on_the_sixth_day() -> None:
    hogs = {client.direction: client for client in week(CLIENTS, 20, 11) if client.hog_from_s is not None}
    assert set(hogs) == {"produce", "fetch"}
    for hog in hogs.values():
        assert hog.hog_from_s is not None
        assert 5 * 20 <= hog.hog_from_s < 6 * 20


def test_clients_have_names_of_their_own() -> None:
    assert len({client.name for client in week(CLIENTS, 20, 11)}) == len(CLIENTS)


def test_requests_have_the_bytes_of_each_second() -> None:
    rows = requests(READER, 3, 1)
    assert {(row.connection, row.client_id, row.api_key) for row in rows} == {(3, "reader", FETCH)}
    found = by_second(rows, READER, 30)
    # Ten seconds of 20 kB/s, ten of nothing, ten of 5 kB/s; a request of about 1 kB is due with its last byte.
    assert [part.sum() for part in np.split(found, 3)] == pytest.approx([200e3, 0, 50e3], abs=2e3)
    assert found[:10] == pytest.approx([20e3] * 10, abs=2e3)


@pytest.mark.parametrize(
    ("reader", "hog", "missed"),
    [
        (judged(READER, 0, 20), judged(HOG, 20_000, 21_000), set()),
        # A thousandth of two days of 10 s is 20 ms.
        (judged(READER, 21, 21), judged(HOG, 0, 0), {"longest wait of a client that behaves"}),
        (judged(READER, 0, 0), judged(HOG, 0, 0, passed=0.4e6), {"passed of what a hog asks for"}),
        # 5 % of 20 s and 20 ms are 1,020 ms.
        (judged(READER, 0, 0), judged(HOG, 20_000, 21_021), {"clients that wait otherwise than predicted"}),
        (judged(READER, 0, 0, errors=1), judged(HOG, 0, 0), {"errors"}),
    ],
)
def test_each_bar_is_missed_for_its_own_reason(reader: Judged, hog: Judged, missed: set[str]) -> None:
    bars = outcome(Week([reader, hog], {}), 10).bars
    assert {bar.name.partition(" (")[0] for bar in bars if not bar.passed} == missed
