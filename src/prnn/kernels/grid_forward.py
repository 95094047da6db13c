"""Family ``grid_forward``: a copy of R spread over many CTAs, up to the whole chip, for the whole sequence.

The kernel and how it works: cuda/grid_forward.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from prnn.facts import GpuFacts
from prnn.kernels import budget, gpu
from prnn.kernels.gpu import Features, Launch, Resources
from prnn.problem import Problem

NAME = "grid_forward"
TEMPLATE = "GridForward"
MAX_WARPS = 16
_STAGES, _STREAMED_CHUNKS, _LEAST_WEIGHT_BYTES = 4, 4, 32  # of the kernel: stages, streamed_chunks, and what an empty array takes
# Addresses, loop counters and temporaries beside what a thread keeps: the least and the most that NVRTC 13 gave them.
_LEAST_OTHER_REGISTERS, _OTHER_REGISTERS = 12, 64


@dataclass(frozen=True)
class GridConfig:
    """The knobs, under the names they have in the kernel.

    Attributes:
        groups_per_cta: groups of 8 units that a CTA owns; this says how many CTAs hold a copy of R.
        k_slices: warps of a CTA, which share the sum over K.
        batch_tiles: tiles of 8 sequences that a copy of R serves.
        tiles_together: of these, received and multiplied at a time.
        register_tiles: tiles of 16 rows of R, of those that a CTA owns, that are kept in registers.
        shared_tiles: that are kept in shared memory; the others are read from L2 in every step.
        partial_buffers: of partial sums; one saves shared memory and costs a barrier.
    """

    groups_per_cta: int
    k_slices: int
    batch_tiles: int
    tiles_together: int
    register_tiles: int
    shared_tiles: int
    partial_buffers: int

    def __str__(self) -> str:
        return (
            f"{8 * self.groups_per_cta} units a CTA, {self.k_slices} warps, {8 * self.batch_tiles} sequences, {8 * self.tiles_together} "
            f"at a time; tiles of weights: {self.register_tiles} in registers, {self.shared_tiles} in shared memory"
        )


def configs(problem: Problem, facts: GpuFacts) -> tuple[GridConfig, ...]:
    """See gpu.GpuFamily."""
    groups = -(-problem.hidden_size // 8)
    fewest = -(-groups // facts.sms)  # groups a CTA, so that all CTAs run at once
    found = []
    for factor, k_slices, batch_tiles in product((1, 2, 4, 8), (4, 8, 16), (1, 2, 4, 8)):
        wasteful = fewest * factor > groups or (k_slices - 1) * gpu.units_per_chunk(problem) >= problem.hidden_size
        if found and wasteful:
            continue
        found += [
            _with_tiers(problem, facts, fewest * factor, k_slices, batch_tiles, together)
            for together in (1, 2, 4)
            if together <= batch_tiles
        ]
    return tuple(found)


def _with_tiers(
    problem: Problem, facts: GpuFacts, groups_per_cta: int, k_slices: int, batch_tiles: int, together: int
) -> GridConfig:
    """As few tiles of weights read from L2 as there is room for, and of the others as many as there is room for in registers."""
    tiles = _tiles(problem, groups_per_cta)
    best = None
    for in_registers, buffers in product(range(tiles, -1, -1), (2, 1)):
        config = GridConfig(groups_per_cta, k_slices, batch_tiles, together, in_registers, 0, buffers)
        needs = resources(problem, config)
        tile_bytes = needs.streamed_weight_bytes // max(tiles - in_registers, 1)
        room = facts.shared_bytes - needs.shared_bytes + _LEAST_WEIGHT_BYTES * needs.threads
        in_shared = min(tiles - in_registers, max(room // tile_bytes, 0) if tile_bytes else 0)
        config = replace(config, shared_tiles=in_shared)
        if resources(problem, config).registers > budget.thread_registers(needs.threads, facts) and in_registers:
            continue
        if best is None or in_registers + in_shared > best.register_tiles + best.shared_tiles:
            best = config
    assert best is not None  # without registers there is always one
    return best


def refuse(problem: Problem, config: GridConfig, facts: GpuFacts) -> str | None:
    """See gpu.GpuFamily."""
    cell = problem.cell
    if (problem.dtype, problem.math) not in gpu.SCALARS:
        return f"its products take float16, bfloat16 or float32, the problem is {problem.dtype}"
    if problem.training:
        return "it keeps nothing for a backward pass"
    if problem.proj_size:
        return f"it does not project the output (proj_size {problem.proj_size})"
    if cell.program.num_stages > 1:
        count = len(cell.program.products)
        return f"a step of {cell.name} has {count} product{'s' if count > 1 else ''} of a vector that the step itself computes"
    needs = resources(problem, config)
    if needs.ctas > facts.sms:
        return f"{needs.ctas} CTAs that wait for one another do not run at once on {facts.sms} SMs"
    return gpu.too_many(cell) or budget.refuse_cta(needs, facts)


def _tiles(problem: Problem, groups_per_cta: int) -> int:
    """Tiles of 16 rows of R that a CTA owns."""
    return (groups_per_cta * len(problem.cell.recurrent_gates) + 1) // 2


def _chunks(problem: Problem) -> int:
    return -(-problem.hidden_size // gpu.units_per_chunk(problem))


def resources(problem: Problem, config: GridConfig) -> Resources:
    """See gpu.GpuFamily."""
    program, tiles = problem.cell.program, _tiles(problem, config.groups_per_cta)
    chunks = -(-_chunks(problem) // config.k_slices)  # of a slice
    threads = 32 * config.k_slices
    tile_bytes = chunks * 32 * threads  # of 16 rows of R, all slices
    streamed = tiles - config.register_tiles - config.shared_tiles
    items = -(-2 * config.batch_tiles * config.groups_per_cta // config.k_slices)
    weights = config.register_tiles * chunks * gpu.chunk_registers(problem)
    received = config.tiles_together * chunks * 4
    sums = 8 * max(2, config.tiles_together)
    on_the_way = min(chunks, _STREAMED_CHUNKS) * gpu.chunk_registers(problem) if streamed else 0
    known = weights + received + sums + on_the_way + items * (len(program.states) + 2)
    partial = config.partial_buffers * config.batch_tiles * max(2 * tiles, 1) * config.k_slices * 256
    gates = _STAGES * items * max(program.num_input_slots, 1) * threads * 4
    constants = config.groups_per_cta * (len(program.slots) + len(program.vectors) + 1) * 32 + 4
    shared = max(config.shared_tiles * tile_bytes, _LEAST_WEIGHT_BYTES * threads) + partial + gates + constants
    return Resources(
        registers=known + _OTHER_REGISTERS,
        least_registers=weights + _LEAST_OTHER_REGISTERS,
        weight_registers=weights,
        threads=threads,
        shared_bytes=-(-shared // 128) * 128,
        ctas=-(-(-(-problem.hidden_size // 8)) // config.groups_per_cta),
        sequences=8 * config.batch_tiles,
        shared_weight_bytes=config.shared_tiles * tile_bytes,
        streamed_weight_bytes=streamed * tile_bytes,
    )


def source(problem: Problem, config: GridConfig, features: Features) -> str:
    """See gpu.GpuFamily."""
    return gpu.text(NAME, TEMPLATE, problem, config, features)


def launch(problem: Problem, config: GridConfig, batch: int, directions: int) -> Launch:
    """See gpu.GpuFamily."""
    needs = resources(problem, config)
    copies = directions * -(-batch // needs.sequences)
    return Launch(copies * needs.ctas, 1, needs.threads, needs.shared_bytes, copies, is_cooperative=True)


def workspace_bytes(problem: Problem, config: GridConfig, batch: int, directions: int) -> int:
    """See gpu.GpuFamily."""
    if not problem.cell.recurrent_gates:
        return 0
    copies = launch(problem, config, batch, directions).copies
    return copies * 2 * config.batch_tiles * _chunks(problem) * 128 * 12  # words, and 8 bytes beside each for what does not fit


def exchanges(problem: Problem, config: GridConfig, batch: int) -> tuple[int, int]:
    """See gpu.GpuFamily."""
    served = min(batch, 8 * config.batch_tiles)
    return resources(problem, config).ctas, problem.itemsize * problem.hidden_size * served
