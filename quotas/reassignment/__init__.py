"""Reassignments in small batches (KIP-435): which step comes next, as a function of the cluster's state.

    step        the next step of one partition
    batch       the next steps of all partitions, within the limits; all batches, if every step succeeds
    estimate    how long a reassignment takes at a throttle (KIP-73)

Steps are submitted and watched by `proxy.control.reassign`.
"""
