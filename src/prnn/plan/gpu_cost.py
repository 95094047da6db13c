"""Microseconds of a GPU's forward pass from counted exchanges, products and bytes.

The constants are measured on an H200. Gathers inside a cluster: alone, by a kernel that does nothing else. The others are fitted to whole
calls of 256 steps: 199 of cluster_forward and 314 of grid_forward, LSTM, GRU and RNN of 64 to 2048 units, 1 to 64 sequences, in float16 and
float32. Half of the estimates are within 5 percent, nine tenths within 12. Other GPUs are extrapolated. Of the family `launched` nothing is
measured yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prnn.facts import GpuFacts
from prnn.kernels import budget, gpu, grid_forward, launched
from prnn.kernels.cluster_forward import ClusterConfig
from prnn.kernels.gpu import GpuFamily, Launch, Resources, is_split
from prnn.kernels.grid_forward import GridConfig
from prnn.problem import Problem

# All-gather inside a cluster, measured on an H200: CTAs -> (bytes, us).
_GATHER_US = {
    8: ((1 << 10, 0.299), (4 << 10, 0.380), (16 << 10, 0.705)),
    16: ((1 << 10, 0.358), (4 << 10, 0.421), (16 << 10, 0.735)),
}
_NEAR_BYTES = 25 << 20  # of a call's input product that stay in the near half of the L2
_LAUNCH_US = 6.0
# cluster_forward, us. Of a step: barriers and the loop; where warps share a sum, their barrier.
_STEP_US, _PARTIAL_US = 0.163, 0.068
# For each warp that a quarter of an SM runs, and each tile of sequences: 16 rows of a chunk of K; 16 rows of a partial sum; a slot of the
# cells of a group of units.
_CHUNK_US, _PARTIAL_ROWS_US, _SLOT_US = 0.0052, 0.003, 0.0202
_NEXT_TILE_US = 0.25  # of each tile of sequences beside the first
_USUAL_REGISTERS = 28  # that the compiler takes beside the least
# grid_forward, us. Of a step: h through L2 between few CTAs, and what a MB more takes that all CTAs read; gates, barriers and the loop.
_GRID_EXCHANGE_US, _L2_US_A_MBYTE, _CELLS_US = 0.51, 0.093, 0.2
# Of a warp: receiving a chunk of K; 16 rows of it, alone and for each warp that its quarter of an SM runs; one such warp; a slot of its
# first 32 cells, and its next 32; a chunk read from L2.
_RECEIVE_US, _ROWS_US, _SHARED_ROWS_US, _WARP_US = 0.0257, 0.0044, 0.0091, 0.07
_GRID_SLOT_US, _NEXT_CELLS_US, _STREAMED_US = 0.034, 0.5, 0.266
_SHARED_US_A_MBYTE = 2.1  # of weights that a CTA reads from shared memory
_PRODUCT_SHARE = 0.69  # of the peak that a product of cuBLAS reaches
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
    served = min(batch, needs.sequences)
    ctas, num_bytes = family.exchanges(problem, config, served)
    if launch.is_cooperative:
        active = min(max(1, facts.sms // needs.ctas), launch.copies)
        exchange_us, copy_us = _grid_us(problem, config, needs, served, num_bytes * ctas * active)
    else:
        active = _active_clusters(needs, launch, facts)
        exchange_us = gather_us(ctas, num_bytes) if problem.cell.recurrent_gates else 0.0
        sharers = -(-min(launch.copies, active) // dict(facts.active_clusters)[launch.cluster_size])
        copy_us = exchange_us + _cluster_us(problem, config, needs, sharers)
    waves = -(-launch.copies // active)
    input_us = _input_us(problem, batch, steps, directions, facts)
    once_us = _LAUNCH_US * (1 + waves if launch.is_cooperative else 2) / steps
    return GpuCost(exchange_us, waves * copy_us, input_us, once_us, launch.copies, active)


def _active_clusters(needs: Resources, launch: Launch, facts: GpuFacts) -> int:
    """Clusters that run at once."""
    registers = needs.threads * min(
        needs.least_registers + _USUAL_REGISTERS, budget.thread_registers(needs.threads, facts)
    )
    return dict(facts.active_clusters)[launch.cluster_size] * max(facts.registers // registers, 1)


def _cluster_us(problem: Problem, config: ClusterConfig, needs: Resources, sharers: int) -> float:
    """Of a step of cluster_forward, beside the exchange, where `sharers` CTAs take turns on an SM."""
    rows, chunks = _rows_and_chunks(problem, config.groups_per_warp, config.k_slices)
    warps, warps_with_cells = -(-needs.threads // 128), -(-config.unit_warps // 4)  # of a quarter of an SM
    tile_us = _CHUNK_US * rows * chunks * (3 if is_split(problem) else 1) * warps
    tile_us += _SLOT_US * len(problem.cell.program.slots) * config.groups_per_warp * warps_with_cells
    partial_us = 0.0
    if config.k_slices > 1:
        partial_us, tile_us = _PARTIAL_US, tile_us + _PARTIAL_ROWS_US * config.k_slices * rows * warps
    return _STEP_US + partial_us + sharers * config.batch_tiles * tile_us + _NEXT_TILE_US * (config.batch_tiles - 1)


def _grid_us(
    problem: Problem, config: GridConfig, needs: Resources, served: int, exchanged: int
) -> tuple[float, float]:
    """Of a step of grid_forward: (exchange, all), where all CTAs that run at once read `exchanged` bytes."""
    rows, chunks = _rows_and_chunks(problem, config.groups_per_cta, config.k_slices)
    exchange_us = _GRID_EXCHANGE_US + _L2_US_A_MBYTE * exchanged / (1 << 20)
    rounds, warps = -(-served // (8 * config.tiles_together)), config.k_slices // 4
    products = rows * (3 if is_split(problem) else 1)
    tile_us = chunks * (_RECEIVE_US + products * (_ROWS_US + _SHARED_ROWS_US * warps))
    # 32 cells are four sequences of a group of units.
    items, live = (
        -(-count * config.groups_per_cta // config.k_slices) for count in (2 * config.batch_tiles, -(-served // 4))
    )
    cells_us = _GRID_SLOT_US * len(problem.cell.program.slots) * live + _NEXT_CELLS_US * (items - 1)
    weights_us = _SHARED_US_A_MBYTE * needs.shared_weight_bytes / (1 << 20)
    weights_us += _STREAMED_US * needs.streamed_weight_bytes / (grid_forward.CHUNK_BYTES * needs.threads)
    others_us = _CELLS_US + _WARP_US * warps + cells_us + rounds * (config.tiles_together * tile_us + weights_us)
    return exchange_us, exchange_us + others_us


def _rows_and_chunks(problem: Problem, groups: int, k_slices: int) -> tuple[int, int]:
    """What a warp multiplies: blocks of 16 rows of R, and chunks of K."""
    rows = -(-groups * len(problem.cell.recurrent_gates) // 2)
    return rows, -(-problem.hidden_size // (gpu.units_per_chunk(problem) * k_slices))


def _input_us(problem: Problem, batch: int, steps: int, directions: int, facts: GpuFacts) -> float:
    gates = len(problem.cell.input_gates) * problem.hidden_size * directions
    flops = 2 * batch * gates * problem.input_size
    is_far = 4 * batch * gates * steps > _NEAR_BYTES
    far_us = 4 * batch * gates / (facts.memory_gbytes_per_s * 1e3) if is_far else 0.0
    return flops / (_tflops(problem, facts) * _PRODUCT_SHARE * 1e6) + far_us


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
    input_us = _input_us(problem, batch, steps, directions, facts)
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
