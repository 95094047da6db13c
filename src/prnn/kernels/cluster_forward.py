"""Family ``cluster_forward``: a copy of R in the registers of one thread-block cluster, for the whole sequence.

The kernel and how it works: cuda/cluster_forward.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from prnn.facts import GpuFacts
from prnn.kernels import budget, gpu
from prnn.kernels.gpu import Features, Launch, Resources
from prnn.problem import Problem

NAME = "cluster_forward"
TEMPLATE = "ClusterForward"
MAX_WARPS = 16
_STAGES = 4  # of the kernel's ring of gates
# Addresses, loop counters and temporaries beside what a thread keeps: the least and the most that NVRTC 13 gave them over 164
# configurations of five cells for sm_90a. Masks take most of the difference.
_LEAST_OTHER_REGISTERS = 12
_OTHER_REGISTERS, _OTHER_REGISTERS_OF_A_TILE = 72, 24  # a tile of each group of units
_OTHER_REGISTERS_OF_SPLITTING = 16


@dataclass(frozen=True)
class ClusterConfig:
    """The knobs, under the names they have in the kernel.

    Attributes:
        cluster_size: CTAs that hold a copy of R.
        unit_warps: warps of a CTA that own different units.
        groups_per_warp: groups of 8 units that a warp owns.
        k_slices: warps that share the sum over K of the same units.
        batch_tiles: tiles of 8 sequences that a copy of R serves, one after the other in every step.
    """

    cluster_size: int
    unit_warps: int
    groups_per_warp: int
    k_slices: int
    batch_tiles: int

    def __str__(self) -> str:
        return (
            f"cluster of {self.cluster_size} CTAs, {self.unit_warps * self.k_slices} warps each, {self.k_slices} slices of K, "
            f"{8 * self.batch_tiles} sequences"
        )


def configs(problem: Problem, facts: GpuFacts) -> tuple[ClusterConfig, ...]:
    """See gpu.GpuFamily."""
    rows = len(problem.cell.recurrent_gates)
    groups_per_warp = 2 if rows % 2 else 1  # whole tiles of two blocks of rows
    groups, chunk = -(-problem.hidden_size // 8), gpu.units_per_chunk(problem)
    found = []
    slices = (
        (1, 2, 4, 8) if gpu.is_split(problem) else (1, 2, 4)
    )  # more were never faster, only where nothing else has room
    for cluster_size, k_slices, batch_tiles in product(facts.cluster_sizes or (1,), slices, (1, 2)):
        unit_warps = -(-groups // (cluster_size * groups_per_warp))
        idle = cluster_size > 1 and -(-groups // groups_per_warp) <= cluster_size // 2
        if unit_warps * k_slices <= MAX_WARPS and not idle and (k_slices - 1) * chunk < problem.hidden_size:
            found.append(ClusterConfig(cluster_size, unit_warps, groups_per_warp, k_slices, batch_tiles))
    if not found:  # so that the list of candidates says what stops the family
        largest = max(facts.cluster_sizes or (1,))
        found.append(ClusterConfig(largest, -(-groups // (largest * groups_per_warp)), groups_per_warp, 1, 1))
    return tuple(found)


def refuse(problem: Problem, config: ClusterConfig, facts: GpuFacts) -> str | None:
    """See gpu.GpuFamily."""
    if not facts.cluster_sizes:
        return f"{facts.name} ({facts.arch}) has no thread-block clusters, which exist from sm_90 on"
    if (reason := gpu.refuse_resident(problem)) is not None:
        return reason
    warps = config.unit_warps * config.k_slices
    if warps > MAX_WARPS:
        return f"{problem.hidden_size} units on {config.cluster_size} CTAs take {warps} warps a CTA, at most {MAX_WARPS} have room"
    return gpu.too_many(problem.cell) or budget.refuse_cta(resources(problem, config), facts)


def resources(problem: Problem, config: ClusterConfig) -> Resources:
    """See gpu.GpuFamily."""
    program = problem.cell.program
    tiles = (config.groups_per_warp * len(problem.cell.recurrent_gates) + 1) // 2  # of 16 rows of R that a warp holds
    chunks = -(-problem.hidden_size // (gpu.units_per_chunk(problem) * config.k_slices))
    weights = tiles * chunks * gpu.chunk_registers(problem)
    cells = 2 * config.groups_per_warp * config.batch_tiles
    kept = cells * len(program.states)
    kept += config.groups_per_warp * (len(program.slots) + len(program.vectors))
    warps = config.unit_warps * config.k_slices
    exchanged = 2 * config.batch_tiles * (4 * chunks * config.k_slices) * 128 if tiles else 256 * config.batch_tiles
    slices = config.k_slices - 1
    partial = config.batch_tiles * (slices * config.unit_warps * max(tiles * 4, 1) if slices else 1) * 128
    gates = _STAGES * cells * max(program.num_input_slots, 1) * config.unit_warps * 128
    barriers = 16 * config.batch_tiles + 4
    known = weights + 4 * tiles * config.batch_tiles * (2 if tiles * config.batch_tiles < 4 else 1) + kept
    others = _OTHER_REGISTERS + _OTHER_REGISTERS_OF_A_TILE * config.batch_tiles * config.groups_per_warp
    if gpu.is_split(problem):
        others += _OTHER_REGISTERS_OF_SPLITTING
    return Resources(
        registers=known + others,
        least_registers=known + _LEAST_OTHER_REGISTERS,
        weight_registers=weights,
        threads=32 * warps,
        shared_bytes=-(-(exchanged + partial + gates + barriers) // 128) * 128,
        ctas=config.cluster_size,
        sequences=8 * config.batch_tiles,
    )


def source(problem: Problem, config: ClusterConfig, features: Features) -> str:
    """See gpu.GpuFamily."""
    return gpu.text(NAME, TEMPLATE, problem, config, features)


def launch(problem: Problem, config: ClusterConfig, batch: int, directions: int) -> Launch:
    """See gpu.GpuFamily."""
    needs = resources(problem, config)
    copies = directions * -(-batch // needs.sequences)
    return Launch(copies * config.cluster_size, config.cluster_size, needs.threads, needs.shared_bytes, copies)


def workspace_bytes(problem: Problem, config: ClusterConfig, batch: int, directions: int) -> int:
    """See gpu.GpuFamily."""
    return 0


def exchanges(problem: Problem, config: ClusterConfig, batch: int) -> tuple[int, int]:
    """See gpu.GpuFamily."""
    served = min(batch, 8 * config.batch_tiles)
    return config.cluster_size, problem.itemsize * problem.hidden_size * served
