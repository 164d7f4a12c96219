"""Reassignments under everything that goes wrong: the planner, a small executor, a simulated cluster (KIP-435).

Brokers die, return or stay away; replicas catch up when they like and fall behind; the executor is killed before or
after it submits; limits change; topics vanish; others reassign the same partitions; users turn back. I1 to I5 and I10
are checked at every submission (tests/support/reassigner.py), the rest here. Each machine runs with one of the three
rules by which Kafka's versions call a reassignment complete.
"""

from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quotas.reassignment.batch import BatchLimits
from quotas.reassignment.step import Move, TopicPartition
from tests.support.moves import batch_limits, replica_lists
from tests.support.reassigned_cluster import Completion, RefusedError, SimulatedCluster
from tests.support.reassigner import Reassigner

_BROKERS = 7
_PARTITIONS = 4
_FACTOR_MAX = 4
_POLLS_MAX = 200

placements = replica_lists(_BROKERS, _FACTOR_MAX)
all_limits = batch_limits(3, 6)


class Reassigning(RuleBasedStateMachine):
    """Everything at any time."""

    completion: Completion = "targets"

    @initialize(placed=st.lists(placements, min_size=_PARTITIONS, max_size=_PARTITIONS), limits=all_limits)
    def start(self, placed: list[tuple[int, ...]], limits: BatchLimits) -> None:
        self.cluster = SimulatedCluster(_BROKERS, self.completion)
        self.executor = Reassigner(self.cluster, limits)
        self.asked: dict[TopicPartition, Move] = {}
        for number, replicas in enumerate(placed):
            self.cluster.create(("t", number), replicas, min_isr=max(1, len(replicas) - 1))

    @rule(number=st.integers(0, _PARTITIONS - 1), wanted=placements)
    def ask(self, number: int, wanted: tuple[int, ...]) -> None:
        key = ("t", number)
        partition = self.cluster.partitions.get(key)
        if key in self.executor.moves or partition is None or partition.now().is_reassigned:
            return
        partition.min_isr = min(partition.min_isr, len(wanted))
        self.asked[key] = Move(*key, tuple(partition.replicas), wanted)
        self.executor.add(self.asked[key])

    @rule(data=st.data())
    def turn_back(self, data: st.DataObject) -> None:
        if self.executor.moves:
            self.executor.turn_back(data.draw(st.sampled_from(sorted(self.executor.moves))))

    @rule(submits=st.booleans())
    def poll(self, submits: bool) -> None:
        self.executor.poll(submits)
        if not submits:
            self.executor.restart()

    @rule()
    def restart(self) -> None:
        self.executor.restart()

    @rule(limits=all_limits)
    def change_limits(self, limits: BatchLimits) -> None:
        self.executor.limits = limits

    @rule(broker=st.integers(0, _BROKERS - 1))
    def die(self, broker: int) -> None:
        if len(self.cluster.live) > 2:
            self.cluster.die(broker)

    @rule(broker=st.integers(0, _BROKERS - 1))
    def come_back(self, broker: int) -> None:
        self.cluster.come_back(broker)
        self.executor.lost -= {broker}

    @rule()
    def lose(self) -> None:
        """Time passes: who is dead now is given up."""
        self.executor.lost |= self.cluster.brokers - self.cluster.live

    @rule(data=st.data(), all_of_them=st.booleans())
    def catch_up(self, data: st.DataObject, all_of_them: bool) -> None:
        if all_of_them:
            self.cluster.catch_up_all()
            return
        found = [(key, broker) for key in self.cluster.partitions for broker in self.cluster.behind(key)]
        if found:
            self.cluster.catch_up(*data.draw(st.sampled_from(found)))

    @rule(data=st.data())
    def fall_behind(self, data: st.DataObject) -> None:
        found = [
            (key, broker)
            for key, partition in self.cluster.partitions.items()
            for broker in partition.isr
            if partition.leader not in {-1, broker}
        ]
        if found:
            self.cluster.fall_behind(*data.draw(st.sampled_from(found)))

    @precondition(lambda self: len(self.cluster.partitions) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.cluster.delete(data.draw(st.sampled_from(sorted(self.cluster.partitions))))

    @rule(data=st.data(), wanted=placements)
    def reassign_elsewhere(self, data: st.DataObject, wanted: tuple[int, ...]) -> None:
        """Another tool reassigns a partition, even one with a step under way: Kafka allows it."""
        self.cluster.alter(data.draw(st.sampled_from(sorted(self.cluster.partitions))), wanted)

    @rule(data=st.data())
    def cancel_elsewhere(self, data: st.DataObject) -> None:
        try:
            self.cluster.cancel(data.draw(st.sampled_from(sorted(self.cluster.partitions))))
        except RefusedError:
            return

    @invariant()
    def leaders_are_in_sync(self) -> None:
        for key, partition in self.cluster.partitions.items():
            assert partition.isr, f"I7: {key} has no replica in sync"
            assert partition.leader == -1 or partition.leader in partition.isr, f"I7: leader of {key}"
            if self.cluster.live == self.cluster.brokers:
                assert partition.leader >= 0, f"I7: {key} is leaderless though every broker lives"

    @invariant()
    def slots_belong_to_moves(self) -> None:
        assert self.executor.journal.keys() <= self.executor.moves.keys(), "I10, I13: a slot leaks"

    @invariant()
    def whoever_waits_is_told_why(self) -> None:
        if self.executor.last is not None:
            for key, waiting in self.executor.last.waiting.items():
                assert waiting.reason, f"I15: {key}"

    def teardown(self) -> None:
        """Everything heals, and every move ends."""
        if not hasattr(self, "cluster"):
            return
        for broker in self.cluster.brokers:
            self.cluster.come_back(broker)
        self.executor.lost = frozenset()
        wanted = {key: move.target for key, move in self.executor.moves.items()}
        for _ in range(_POLLS_MAX):
            self.cluster.catch_up_all()
            self.executor.poll()
            if not self.executor.moves:
                break
        assert not self.executor.moves, f"I15: stuck: {self.executor.last}"
        assert not self.executor.journal, "I10, I13: a step is under way after all moves have ended"
        for key, target in wanted.items():
            partition = self.cluster.partitions.get(key)
            if partition is None:
                continue
            assert tuple(partition.replicas) == target, f"I8, I11, I12: {key} is not at its target"
            assert partition.leader == target[0], f"I8: leader of {key}"
            assert {*partition.isr} <= {*target}


@pytest.mark.parametrize("completion", get_args(Completion))
def test_moves_end_at_their_target_after_any_failures(completion: Completion) -> None:
    class Machine(Reassigning):
        pass

    Machine.completion = completion
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=50, stateful_step_count=40, deadline=None)
    )
