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
_STAGES = 4  # of the kernel's ring of gates
CHUNK_BYTES = 32  # of R, for a thread
# Addresses, loop counters and temporaries beside what a thread keeps: the least that NVRTC 13 gave them, and with how many nothing was
# spilled in 36 drawn configurations of five cells for sm_90a; where there are more, the compiler takes them.
_LEAST_OTHER_REGISTERS, _OTHER_REGISTERS, _OTHER_REGISTERS_OF_IEEE = 12, 64, 36
_FREE_WORDS = (
    48  # of h that a lane receives; each beyond takes 3/4 of a register more, as 19 configurations showed that spilled
)


@dataclass(frozen=True)
class GridConfig:
    """The knobs, under the names they have in the kernel.

    Attributes:
        groups_per_cta: groups of 8 units that a CTA owns; this says how many CTAs hold a copy of R.
        k_slices: warps of a CTA, which share the sum over K.
        batch_tiles: tiles of 8 sequences that a copy of R serves.
        tiles_together: of these, received and multiplied at a time.
        register_chunks: of R, 16 rows x 64 bytes of columns each, of all that a warp multiplies, that it keeps in registers.
        shared_chunks: that it keeps in shared memory; the others it reads from L2 in every step.
    """

    groups_per_cta: int
    k_slices: int
    batch_tiles: int
    tiles_together: int
    register_chunks: int
    shared_chunks: int

    def __str__(self) -> str:
        return (
            f"{8 * self.groups_per_cta} units a CTA, {self.k_slices} warps, {8 * self.batch_tiles} sequences, {8 * self.tiles_together} "
            f"at a time; chunks of weights a warp: {self.register_chunks} in registers, {self.shared_chunks} in shared memory"
        )


def configs(problem: Problem, facts: GpuFacts) -> tuple[GridConfig, ...]:
    """See gpu.GpuFamily."""
    groups = _groups(problem)
    fewest = -(-groups // facts.sms)  # groups a CTA, so that all CTAs run at once
    found: list[GridConfig] = []
    for factor, k_slices, batch_tiles in product((1, 2, 4, 8), (4, 8, 16), (1, 2, 4)):
        cells = 2 * batch_tiles * fewest * factor  # of a CTA, 32 at a time, which take long one after the other
        unfit = (k_slices == 4 and cells > 4) or (k_slices == 16 and cells <= 8)  # 8 warps were faster
        wasteful = fewest * factor > groups or (k_slices - 1) * gpu.units_per_chunk(problem) >= problem.hidden_size
        if found and (unfit or wasteful):
            continue
        found += [
            _with_tiers(problem, facts, fewest * factor, k_slices, batch_tiles, together)
            for together in (1, 2, 4)
            if together <= batch_tiles
        ]
    fitting = [each for each in found if _fits(resources(problem, each), facts)]
    kept = [
        each for each in fitting if not resources(problem, each).streamed_weight_bytes
    ]  # else several times as slow
    return tuple(kept or fitting or found[:1])


def _fits(needs: Resources, facts: GpuFacts) -> bool:
    """Without spilling, probably."""
    return needs.registers <= budget.thread_registers(needs.threads, facts) and budget.refuse_cta(needs, facts) is None


def _with_tiers(
    problem: Problem, facts: GpuFacts, groups_per_cta: int, k_slices: int, batch_tiles: int, together: int
) -> GridConfig:
    """As few weights read from L2 as there is room for, and of the others as many as there is room for in registers.

    Tiles are read from L2 whole, and never one alone: the compiler asks for a whole step's at once where no loop stops it, and spills.
    """
    chunks = _chunks_per_slice(problem, k_slices)
    owned = _tiles(problem, groups_per_cta) * chunks
    limit = budget.thread_registers(32 * k_slices, facts)
    found = []
    for all_kept in (True, False):
        config = GridConfig(groups_per_cta, k_slices, batch_tiles, together, 0, owned if all_kept else 0)
        room = max(0, limit - resources(problem, config).registers) // gpu.chunk_registers(problem)
        config = replace(config, register_chunks=min(owned, room), shared_chunks=0)
        needs = resources(problem, config)
        room = max(0, facts.shared_bytes - needs.shared_bytes) // (CHUNK_BYTES * needs.threads) + 1
        rest = owned - config.register_chunks
        if rest <= room:
            found.append(replace(config, shared_chunks=rest))
        elif not all_kept:
            kept = max(0, min((config.register_chunks + room) // chunks * chunks, owned - 2 * chunks))
            found.append(replace(config, register_chunks=max(0, kept - room), shared_chunks=min(kept, room)))
    return max(found, key=lambda each: each.register_chunks + each.shared_chunks)


def refuse(problem: Problem, config: GridConfig, facts: GpuFacts) -> str | None:
    """See gpu.GpuFamily."""
    if not facts.cluster_sizes:
        return f"it was made for sm_90 and newer, {facts.name} is {facts.arch}"
    if (reason := gpu.refuse_resident(problem)) is not None:
        return reason
    needs = resources(problem, config)
    if needs.ctas > facts.sms:
        return f"{needs.ctas} CTAs that wait for one another do not run at once on {facts.sms} SMs"
    return gpu.too_many(problem.cell) or budget.refuse_cta(needs, facts)


def _tiles(problem: Problem, groups_per_cta: int) -> int:
    """Tiles of 16 rows of R that a CTA owns."""
    return (groups_per_cta * len(problem.cell.recurrent_gates) + 1) // 2


def _groups(problem: Problem) -> int:
    """Groups of 8 units."""
    return -(-problem.hidden_size // 8)


def _chunks(problem: Problem) -> int:
    """Chunks of K."""
    return -(-problem.hidden_size // gpu.units_per_chunk(problem))


def _chunks_per_slice(problem: Problem, k_slices: int) -> int:
    return -(-_chunks(problem) // k_slices)


def resources(problem: Problem, config: GridConfig) -> Resources:
    """See gpu.GpuFamily."""
    program, tiles = problem.cell.program, _tiles(problem, config.groups_per_cta)
    chunks, threads = _chunks_per_slice(problem, config.k_slices), 32 * config.k_slices
    streamed = tiles * chunks - config.register_chunks - config.shared_chunks
    items = -(-2 * config.batch_tiles * config.groups_per_cta // config.k_slices)
    weights = config.register_chunks * gpu.chunk_registers(problem)
    received = config.tiles_together * chunks * 4
    sums = 8 * max(2, config.tiles_together)
    words = 0 if problem.itemsize == 2 else 8  # beside the factors that are made of them
    on_the_way = min(chunks, 8 // problem.itemsize) * (gpu.chunk_registers(problem) + words) if streamed else 0
    known = weights + (received + sums if tiles else 0)
    others = _OTHER_REGISTERS + on_the_way + max(0, received - _FREE_WORDS) * 3 // 4
    others += _OTHER_REGISTERS_OF_IEEE if gpu.is_split(problem) else 0
    partial = config.batch_tiles * max(2 * tiles, 1) * config.k_slices * 256
    cells = items * (_STAGES * max(program.num_input_slots, 1) + len(program.states)) * threads * 4
    constants = config.groups_per_cta * (len(program.slots) + len(program.vectors) + 1) * 32 + 4
    shared = max(config.shared_chunks, 1) * CHUNK_BYTES * threads + partial + cells + constants
    return Resources(
        registers=known + others,
        least_registers=known + _LEAST_OTHER_REGISTERS,
        weight_registers=weights,
        threads=threads,
        shared_bytes=-(-shared // 128) * 128,
        ctas=-(-_groups(problem) // config.groups_per_cta),
        sequences=8 * config.batch_tiles,
        shared_weight_bytes=config.shared_chunks * CHUNK_BYTES * threads,
        streamed_weight_bytes=streamed * CHUNK_BYTES * threads,
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
    tiles = launch(problem, config, batch, directions).copies * config.batch_tiles
    return 2 * tiles * _chunks(problem) * 128 * 12  # words, and 8 bytes beside each for what does not fit


def exchanges(problem: Problem, config: GridConfig, batch: int) -> tuple[int, int]:
    """See gpu.GpuFamily."""
    served = min(batch, 8 * config.batch_tiles)
    return resources(problem, config).ctas, problem.itemsize * problem.hidden_size * served
