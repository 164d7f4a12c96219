"""The demo's live table."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from tests.demo.measure import DemoClient
from tests.demo.plan import DIRECTIONS

_BAR_WIDTH: Final = 10
_OVER: Final = 1.05


def live_table(clients: Sequence[DemoClient], title: str) -> Table:
    """Draw what each client does now beside what it may do; 80 columns are enough."""
    table = Table(title=title, title_justify="left")
    table.add_column("client id", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("quota\nMB/s", "now\nMB/s", "now /\nquota", "waits, of\nits time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for client in clients:
        for name, direction in zip(
            (client.plan.client_id, f"[dim]{client.plan.says}"), DIRECTIONS, strict=True
        ):
            quota, now = client.plan.quota(direction), client.rate_now(direction)
            table.add_row(
                name,
                direction,
                f"{quota / 1e6:.2f}",
                f"{now / 1e6:.2f}",
                f"{now / quota:.2f}",
                f"{client.waited_now(direction):.0%}",
                _bar(now / quota),
                end_section=direction == DIRECTIONS[-1],
            )
    return table


def _bar(share: float) -> str:
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    colour = "green" if share <= _OVER else "red"
    return f"[{colour}]{'█' * filled}[/]{'░' * (_BAR_WIDTH - filled)}"
