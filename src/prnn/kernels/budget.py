"""What fits where: in which cache of a CPU, in the registers and the shared memory of a GPU. The only statement of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prnn.facts import CpuFacts, GpuFacts

if TYPE_CHECKING:
    from prnn.kernels.gpu import Resources

# The rest is for states, activations and everything that passes through.
USABLE_SHARE = 0.75
# Of an L3, where other programs compete for it. What is read in a circle is kept whole up to the first share, and not at all from the
# second on, since the oldest goes first. Measured on 32 MiB: 63 GB/s up to 8 MiB, 37 at 12, 16 at 16, 13 at 24.
WHOLE_SHARE_OF_L3, LAST_SHARE_OF_L3 = 0.25, 0.75


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
    return "L3" if share_in_l3(num_bytes, facts) > 0.5 else "memory"


def share_in_l3(num_bytes: float, facts: CpuFacts) -> float:
    """How much of `num_bytes` of weights the shared L3 keeps from step to step, 0 to 1."""
    if not facts.l3_bytes:
        return 0.0
    share = (LAST_SHARE_OF_L3 - num_bytes / facts.l3_bytes) / (LAST_SHARE_OF_L3 - WHOLE_SHARE_OF_L3)
    return min(1.0, max(0.0, share))


def thread_registers(threads: int, facts: GpuFacts) -> int:
    """Registers that each of a CTA's threads can have: whole eights, handed out a warp at a time."""
    return min(facts.thread_registers, facts.registers // threads // 8 * 8)


def refuse_cta(needs: Resources, facts: GpuFacts) -> str | None:
    """Why a CTA cannot fit on an SM, or None."""
    limit = thread_registers(needs.threads, facts)
    if needs.least_registers > limit:
        return (
            f"a thread takes at least {needs.least_registers} registers, {needs.weight_registers} of them for weights; with "
            f"{needs.threads} threads it can have {limit}"
        )
    if needs.shared_bytes > facts.shared_bytes:
        return f"a CTA takes {needs.shared_bytes} bytes of shared memory, it can have {facts.shared_bytes}"
    return None
