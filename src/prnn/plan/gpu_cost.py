"""Microseconds of a GPU's forward pass from counted exchanges, products and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prnn.facts import GpuFacts
from prnn.kernels import budget
from prnn.kernels.gpu import GpuFamily
from prnn.problem import Problem

# All-gather inside a cluster, measured on an H200: CTAs -> (bytes, us).
_GATHER_US = {
    8: ((1 << 10, 0.299), (4 << 10, 0.380), (16 << 10, 0.705)),
    16: ((1 << 10, 0.358), (4 << 10, 0.421), (16 << 10, 0.735)),
}
_LONE_CTA_US = 0.1  # the same within one CTA: an estimate
_MMA_CYCLES = 8  # issue of an m16n8k16 on a quarter of an SM: an estimate
_CELL_US = 0.08  # gates, conversion and stores of one tile of sequences: an estimate
_SLICES_US = 0.03  # partial sums through shared memory: an estimate
_LAUNCH_US = 6.0
_PRODUCT_SHARE = 0.5  # of the peak that the input product reaches


@dataclass(frozen=True)
class GpuCost:
    """Estimated microseconds a step, and what they are made of.

    Attributes:
        exchange_us: until all CTAs of a copy of the weights have what one step made.
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
    needs, launch = family.resources(problem, config), family.launch(problem, config, batch, directions)
    ctas, num_bytes = family.exchanges(problem, config, min(batch, needs.sequences))
    tiles = -(-min(batch, needs.sequences) // 8)
    warps_per_quarter = -(-needs.threads // 128)
    product_us = needs.weight_registers / 4 * _MMA_CYCLES * warps_per_quarter / facts.clock_mhz
    slices = getattr(config, "k_slices", 1)
    tile_us = product_us + _CELL_US + (_SLICES_US if slices > 1 else 0.0)
    exchange_us = gather_us(ctas, num_bytes // tiles) if problem.cell.recurrent_gates else 0.0
    # The exchange of one tile hides behind the work on the others.
    copy_us = max(exchange_us + tile_us, tiles * tile_us)
    together = min(
        2, facts.registers // (needs.threads * min(needs.registers, budget.thread_registers(needs.threads, facts)))
    )
    active = dict(facts.active_clusters)[launch.cluster_size] * max(together, 1)
    waves = -(-launch.copies // active)
    gates = len(problem.cell.input_gates) * problem.hidden_size * directions
    flops = 2 * batch * gates * problem.input_size
    input_us = max(
        flops / (facts.half_tflops * _PRODUCT_SHARE * 1e6), 4 * batch * gates / (facts.memory_gbytes_per_s * 1e3)
    )
    return GpuCost(exchange_us, waves * copy_us, input_us, (2 * _LAUNCH_US) / steps, launch.copies, active)


def gather_us(ctas: int, num_bytes: int) -> float:
    """An all-gather of `num_bytes` inside a cluster."""
    if ctas == 1:
        return _LONE_CTA_US
    points = _GATHER_US[16 if ctas > 8 else 8]
    if num_bytes <= points[0][0]:
        return points[0][1]
    for (low, low_us), (high, high_us) in zip(points, points[1:]):
        if num_bytes <= high:
            return low_us + (high_us - low_us) * (num_bytes - low) / (high - low)
    (low, low_us), (high, high_us) = points[-2:]
    return high_us + (high_us - low_us) / (high - low) * (num_bytes - high)
