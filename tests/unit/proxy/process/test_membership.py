"""A control process that leases its workers the shares of a fleet's member."""

from proxy.process.shares import ControlShares, lessee_of, terms_of
from quotas.sharing.lease_values import LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member

KEY = "producer_byte_rate@-1 -=:a"


def test_workers_have_their_members_share_together() -> None:
    fleet_terms, terms = LeaseTerms(15_000, 1000, 4), terms_of(2)
    holder = Lessor(fleet_terms, 1, lambda _: 1.0, 0, 0)
    member = Member(Lessee(fleet_terms, LesseeId("gw-1", 1), 0), terms, 0)
    control = ControlShares(terms, 1, 0, member)
    workers = {run: lessee_of(terms, run, run, 0) for run in (1, 2)}
    for now_ms in range(0, 5000, 50):
        for worker in workers.values():
            worker.expire(now_ms)
            worker.wish({KEY: Wish(1.0, 1)})
            if worker.due(now_ms):
                assert control.report(worker.report(now_ms), now_ms)
        report = member.report(now_ms)
        if report is not None:
            holder.report(report, now_ms)
        for _, grants in holder.grants(now_ms):
            member.take(grants, now_ms)
        for lessee, grants in control.grants(now_ms):
            if workers[lessee.run].take(grants, now_ms):
                workers[lessee.run].confirm()
    shares = [worker.share(KEY, 4990) for worker in workers.values()]
    assert 0.95 < sum(shares) <= member.lessee.share(KEY, 4990) <= 1
    assert 0.45 < shares[0] < 0.55
