"""What fits in which cache: the only statement of it."""

from __future__ import annotations

from prnn.facts import CpuFacts

# The rest is for states, activations and everything that passes through.
USABLE_SHARE = 0.75


def home(num_bytes: int, threads: int, facts: CpuFacts) -> str:
    """The nearest memory that keeps `num_bytes` of weights from step to step: ``L1``, ``L2``, ``L3`` or ``memory``.

    Args:
        threads: each keeps its own equal slice, in its own core's L1 and L2.
    """
    slice_bytes = num_bytes / threads
    if slice_bytes <= USABLE_SHARE * facts.l1d_bytes:
        return "L1"
    if slice_bytes <= USABLE_SHARE * facts.l2_bytes:
        return "L2"
    return "L3" if num_bytes <= USABLE_SHARE * facts.l3_bytes else "memory"
