"""What a holder costs is measured at one that leases: every member has its lease, and grants are counted."""

import io

from rich.console import Console

from tests.bench.fleet import holder


def test_members_have_leases_while_the_holder_is_measured() -> None:
    found = holder.measure(Console(file=io.StringIO()), members=2, keys=10, seconds=1.0)
    assert (found.members, found.leased, found.keys) == (2, 2, 10)
    assert found.grants > 0
