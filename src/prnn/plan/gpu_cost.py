"""Microseconds of a GPU's forward pass from counted exchanges, products and bytes.

The constants are measured on an H200. For cluster_forward.py with its own kernel: gathers alone, by a kernel that does nothing else; the
rest fitted to 48 timed configurations of an LSTM in float16 (128 to 512 units, 1 to 64 sequences, 256 steps), of which the estimates are
within 12 percent. For grid_forward.py fitted to 38 timed configurations of a prototype of it, an LSTM in float16 (256 to 2048 units, 8 to
128 sequences, 256 steps) without the input product, of which the estimates are within 21 percent. Other cells, types and GPUs are
extrapolated. Of the family `launched` nothing is measured yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prnn.facts import GpuFacts
from prnn.kernels import budget, gpu, launched
from prnn.kernels.gpu import GpuFamily, Launch, Resources, is_split
from prnn.problem import Problem

# All-gather inside a cluster, measured on an H200: CTAs -> (bytes, us).
_GATHER_US = {
    8: ((1 << 10, 0.299), (4 << 10, 0.380), (16 << 10, 0.705)),
    16: ((1 << 10, 0.358), (4 << 10, 0.421), (16 << 10, 0.735)),
}
# Of an m16n8k16, or an m16n8k8 of TF32, on a quarter of an SM: between two, and from operands to sums.
_MMA_CYCLES, _MMA_LATENCY = 6, 33
_TILE_US = 0.5  # of a tile of sequences beside exchange and product: gates, waits, loop
_SEQUENCES_US = 0.26  # conversion, sends and stores of 8 sequences; less of fewer
# A tile takes longer where the input product of a call does not stay in the near half of the L2.
_NEAR_BYTES, _FAR_US = 25 << 20, 0.33
_LAUNCH_US = 6.0
# The grid: h of a round of tiles through L2, as 8 CTAs alone take for it, and each further round; what many CTAs that read add; gates,
# barrier and loop; products beside the time of their mma's or of their weights' way from shared memory.
_ROUND_US, _NEXT_ROUND_US, _L2_US_A_MBYTE, _CELLS_US, _PRODUCT_SLOWNESS = 0.51, 0.25, 0.062, 0.22, 1.2
_GRID_L2_BYTES, _L2_GBYTES_PER_S = 40 << 20, 5000  # for weights that are read in every step
_PRODUCT_SHARE = 0.5  # of the peak that a product of cuBLAS reaches
# Peak of products beside that of 16-bit numbers; float32 proper has no tensor cores.
_SHARE_OF_HALF = {
    ("float16", "ieee"): 1,
    ("bfloat16", "ieee"): 1,
    ("float32", "tf32"): 1 / 2,
    ("float32", "ieee"): 1 / 15,
}
# Of the family `launched`. A launch inside a graph costs the gap before it and the time until its first numbers are there.
_NODE_US = 2.5
_L2_BYTES_PER_CYCLE = 22  # that an SM reads of weights which stay in the L2
_MOVED_SHARE = 0.75  # of the L2 that weights and gates have until the next step
_HAS_FAST_DOUBLE = ("sm_80", "sm_90a", "sm_100")  # half the rate of float32; elsewhere a 64th


@dataclass(frozen=True)
class GpuCost:
    """Estimated microseconds a step, and what they are made of.

    Attributes:
        exchange_us: until all CTAs of a copy of the weights have what one step made; until the launches of a step have begun, where
            there are several.
        recurrence_us: the exchange, the products and the cell, for all copies: `copies` of which `active` run at once.
        once_us: this step's share of what is done once a call.
    """

    exchange_us: float
    recurrence_us: float
    input_us: float
    once_us: float
    copies: int
    active: int

    @property
    def step_us(self) -> float:
        return self.recurrence_us + self.input_us + self.once_us


def estimate(
    family: GpuFamily, problem: Problem, config: Any, batch: int, steps: int, directions: int, facts: GpuFacts
) -> GpuCost:
    """What a call costs under `config`."""
    if family.NAME == launched.NAME:
        return _launched(problem, batch, steps, directions, facts)
    needs, launch = family.resources(problem, config), family.launch(problem, config, batch, directions)
    gates = len(problem.cell.input_gates) * problem.hidden_size * directions
    served = min(batch, needs.sequences)
    ctas, num_bytes = family.exchanges(problem, config, served)
    if launch.is_cooperative:
        active = min(max(1, facts.sms // needs.ctas), launch.copies)
        exchange_us, copy_us = _grid_us(problem, config, needs, num_bytes, active, facts)
    else:
        active = _active_clusters(needs, launch, facts)
        tiles = -(-served // 8)
        exchange_us = gather_us(ctas, num_bytes // tiles) if problem.cell.recurrent_gates else 0.0
        products = needs.weight_registers / 4 * (1.5 if is_split(problem) else 1)  # three with two parts of a weight
        product_us = products * _MMA_CYCLES * -(-needs.threads // 128) / facts.clock_mhz
        far_us = _FAR_US if 2 * gates * batch * steps > _NEAR_BYTES else 0.0
        tile_us = product_us + _TILE_US + _SEQUENCES_US * min(batch, 8) / 8 + far_us
        # The tiles of a cluster run one after the other, and the exchange of one does not hide behind the work on the others: two take
        # twice as long. So tiles save nothing over more copies of the weights, even where these run in waves; a tie goes to the earlier
        # configuration, which has fewer tiles.
        copy_us = tiles * (exchange_us + tile_us)
    waves = -(-launch.copies // active)
    input_us = _input_us(problem, batch, directions, facts)
    once_us = _LAUNCH_US * (1 + waves if launch.is_cooperative else 2) / steps
    return GpuCost(exchange_us, waves * copy_us, input_us, once_us, launch.copies, active)


def _active_clusters(needs: Resources, launch: Launch, facts: GpuFacts) -> int:
    """Clusters that run at once."""
    registers = needs.threads * min(needs.registers, budget.thread_registers(needs.threads, facts))
    return dict(facts.active_clusters)[launch.cluster_size] * max(min(2, facts.registers // registers), 1)


def _grid_us(
    problem: Problem, config: Any, needs: Resources, num_bytes: int, active: int, facts: GpuFacts
) -> tuple[float, float]:
    """Of a step of grid_forward: (exchange, all), where `active` copies of the weights run at once."""
    rounds = -(-num_bytes // (8 * config.tiles_together * problem.hidden_size * problem.itemsize))
    tiles = rounds * config.tiles_together
    exchange_us = (
        _ROUND_US + _NEXT_ROUND_US * (rounds - 1) + _L2_US_A_MBYTE * num_bytes * needs.ctas * active / (1 << 20)
    )
    chunks = -(-problem.hidden_size // (gpu.units_per_chunk(problem) * config.k_slices))
    rows = -(-config.groups_per_cta * len(problem.cell.recurrent_gates) // 2)
    mmas = tiles * rows * chunks * (6 if is_split(problem) else 2)  # of a warp
    mma_cycles = max(_MMA_CYCLES * config.k_slices / 4, _MMA_LATENCY / (4 if tiles > 1 or rows > 1 else 2))
    # Shared memory gives 128 bytes a cycle. Partial sums are written and read.
    weight_cycles = rounds * needs.shared_weight_bytes / 128
    partial_cycles = tiles * rows * config.k_slices * 2 * 256 * 2 / 128
    cycles = _PRODUCT_SLOWNESS * max(mmas * mma_cycles, weight_cycles) + partial_cycles
    streamed = rounds * needs.streamed_weight_bytes * needs.ctas * active
    gbytes_per_s = _L2_GBYTES_PER_S if streamed < _GRID_L2_BYTES else facts.memory_gbytes_per_s
    all_us = exchange_us + _CELLS_US + cycles / facts.clock_mhz + streamed / (gbytes_per_s * 1e3)
    return exchange_us, all_us


def _input_us(problem: Problem, batch: int, directions: int, facts: GpuFacts) -> float:
    gates = len(problem.cell.input_gates) * problem.hidden_size * directions
    flops = 2 * batch * gates * problem.input_size
    return max(
        flops / (_tflops(problem, facts) * _PRODUCT_SHARE * 1e6), 4 * batch * gates / (facts.memory_gbytes_per_s * 1e3)
    )


def _tflops(problem: Problem, facts: GpuFacts) -> float:
    """Of products of the problem's numbers."""
    if problem.dtype == "float64":
        return facts.sms * facts.clock_mhz * 256e-6 / (2 if facts.arch in _HAS_FAST_DOUBLE else 64)
    return facts.half_tflops * _SHARE_OF_HALF[problem.dtype, problem.math]


def _launched(problem: Problem, batch: int, steps: int, directions: int, facts: GpuFacts) -> GpuCost:
    """A product and a launch of the cell for each stage; the weights are read again in every step."""
    matrices = launched.products(problem)
    weights = directions * sum(rows * columns for rows, columns in matrices)
    weight_bytes = weights * problem.itemsize
    stays = weight_bytes <= _MOVED_SHARE * facts.l2_bytes
    gbytes_per_s = facts.sms * facts.clock_mhz * _L2_BYTES_PER_CYCLE * 1e-3 if stays else facts.memory_gbytes_per_s
    products_us = max(
        2 * weights * batch / (_tflops(problem, facts) * _PRODUCT_SHARE * 1e6), weight_bytes / (gbytes_per_s * 1e3)
    )
    launches = launched.num_launches(problem)
    moved = len(problem.cell.program.slots) + 2 * len(problem.cell.states) + 1
    cells_us = launches * 4 * moved * directions * batch * problem.hidden_size / (facts.memory_gbytes_per_s * 1e3)
    nodes_us = _NODE_US * (len(matrices) + launches)
    once_us = (4 * _LAUNCH_US + 2 * weight_bytes / (facts.memory_gbytes_per_s * 1e3)) / steps
    input_us = _input_us(problem, batch, directions, facts)
    return GpuCost(nodes_us, nodes_us + products_us + cells_us, input_us, once_us, directions, directions)


def gather_us(ctas: int, num_bytes: int) -> float:
    """An all-gather of `num_bytes` inside a cluster. Of 2 to 8 CTAs a step takes about the same; one alone was not measured."""
    points = _GATHER_US[16 if ctas > 8 else 8]
    if num_bytes <= points[0][0]:
        return points[0][1]
    for (low, low_us), (high, high_us) in zip(points, points[1:]):
        if num_bytes <= high:
            return low_us + (high_us - low_us) * (num_bytes - low) / (high - low)
    (low, low_us), (high, high_us) = points[-2:]
    return high_us + (high_us - low_us) / (high - low) * (num_bytes - high)
