"""The demo's live table."""

from collections.abc import Sequence

from rich.table import Table

from tests.demo.measure import DemoClient
from tests.demo.plan import DIRECTIONS, megabytes


def live_table(clients: Sequence[DemoClient], title: str) -> Table:
    """Draw what each client does now beside what it may do."""
    table = Table(title=title, title_justify="left")
    table.add_column("client id")
    table.add_column("tries")
    table.add_column("")
    for name in ("quota", "now", "now / quota", "throttled"):
        table.add_column(name, justify="right")
    table.add_column("")
    for client in clients:
        for direction in DIRECTIONS:
            first = direction == DIRECTIONS[0]
            quota = client.plan.quota(direction)
            share = client.rate_now(direction) / quota
            table.add_row(
                client.plan.client_id if first else "",
                client.plan.says if first else "",
                direction,
                megabytes(quota),
                megabytes(client.rate_now(direction)),
                f"{share:.2f}",
                f"{client.throttled_ms[direction]:,.0f} ms",
                _bar(share),
                end_section=not first,
            )
    return table


def _bar(share: float) -> str:
    width = 20
    filled = min(width, round(share * width))
    colour = "green" if share <= 1.05 else "red"
    return f"[{colour}]{'█' * filled}[/]{'░' * (width - filled)}"
