"""The page: complete, self-contained, and safe against names that clients choose."""

from dataclasses import replace

from offline.report import Report, page
from offline.report.content import Curve, Direction, Heavy, Shared
from offline.report.page import draw_demand, svg

EVIL = "<script>alert('$x_')</script>"


def report(hours: int = 24, *, gateway: bool = False, name: str = EVIL) -> Report:
    heavy = Heavy(name, 0.5, 2e6, 3e6, 2.5e6, 4, -1.0, 1e6, 1500, [1e6, 2e6])
    way = Direction(
        name="produce",
        clients=10,
        heavy=[heavy],
        steps_s=[0.0, 3600.0],
        total=[2e6, 3e6],
        hours=[1e6] * hours,
        curve=[Curve(1e6, 2, 10, 3e6), Curve(2e6, 0, 10, 4e6)],
        blocks_s=[0.0, 10.0],
        before=[4e6, 4e6],
        after=[3e6, 3e6],
        broker=1,
        default=1e6,
        throttled=2,
        throttle_ms=1500,
        overrides=1,
        peak_before=4e6,
        peak_after=3e6,
        capacity=3.5e6,
        gateway=gateway,
    )
    return Report(
        begun="2026-01-01 00:00 UTC",
        seconds=7200,
        requests=1_234_567,
        policy="kip13",
        recommendations=[
            {
                "who": EVIL,
                "key": "k",
                "value": "1 MB/s",
                "reason": "r",
                "effect": "e",
                "confidence": "low: 35 s",
            }
        ],
        problems=["file x, row 3: bad"],
        directions=[way],
        gateway=gateway,
        quotas='[[quota]]\nclient_id = "a"\n',
    )


def test_names_are_escaped_in_tables_and_figures() -> None:
    text = page(report())
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_report_has_every_section() -> None:
    text = page(report())
    assert text.count("<svg") == 5
    for part in (
        "1,234,567",
        "file x, row 3: bad",
        "more than tried",
        "client_id = &#34;a&#34;",
        "1.5 s",
        "4.0 MB/s → 3.0 MB/s",
        "2 of 10",
        "and 1 override<",
    ):
        assert part in text


def test_a_capacity_is_shown_with_what_is_lent_and_waits_of_both_quotas() -> None:
    shared = Shared(
        classes=[(EVIL, 1e6, 3e6, 2.0, 94_000, 287_000), ("calm", 2e6, 2e6, 1.0, 0, 0)],
        promised=[2e6, 2e6],
        lent=[1e6, 1e6],
    )
    made = report()
    text = page(replace(made, directions=[replace(made.directions[0], shared=shared)]))
    assert text.count("<svg") == 6
    assert "<script" not in text
    for part in ("What is promised and lent of the capacity", "1 min 34 s", "4 min 47 s"):
        assert part in text
    assert "What is promised and lent" not in page(made)


def test_one_budget_for_all_brokers_is_not_any_one_brokers() -> None:
    assert "busiest broker" in page(report())
    text = page(report(gateway=True))
    for part in ("busiest", "Broker 1", "per broker"):
        assert part not in text
    assert text.count("all brokers together") >= 4


def test_a_name_that_begins_with_an_underscore_is_in_the_legend() -> None:
    way = report(name="_internal").directions[0]
    assert "_internal" in svg(draw_demand, way, "demand", (7, 3))


def test_a_sample_has_no_limits_and_no_curve() -> None:
    whole = report()
    way = whole.directions[0]
    heavy = [replace(one, need=None, quota=None, throttle_ms=0) for one in way.heavy]
    sampled = replace(way, heavy=heavy, curve=[], default=None, overrides=0)
    text = page(replace(whole, directions=[sampled]))
    assert text.count("<svg") == 4
    assert "10</b>clients in the sample" in text
    for part in ("recommended quota", "with the recommendation", "clients throttled", "4.0 MB/s →"):
        assert part not in text


def test_recording_of_less_than_a_day_has_no_daily_curve() -> None:
    assert page(report(hours=0)).count("<svg") == 4


def test_the_same_report_is_the_same_page() -> None:
    assert page(report()) == page(report())
