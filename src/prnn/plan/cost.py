"""Microseconds from counted bytes, operations and barriers.

The rates were measured on two cores of an AMD EPYC Milan; on another CPU the estimates are off by the ratio of the machines, which
moves all candidates alike. Costs that do not differ between candidates (x, y, the values kept for backward) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from prnn.facts import CpuFacts
from prnn.kernels import budget
from prnn.kernels.family import Config, Work
from prnn.problem import Problem

GBYTES_PER_S = {"L1": 150.0, "L2": 78.0, "L3": 65.0, "memory": 22.0}  # of one core
# What a second core adds: caches of its own, most of a shared one, nothing of memory that one core can saturate.
ADDED_BY_A_CORE = {"L1": 1.0, "L2": 1.0, "L3": 0.85, "memory": 0.0}
GFLOPS = {
    "x86-64-v4": 150.0,
    "x86-64-v3": 98.0,
    "x86-64": 24.0,
    "neon": 45.0,
}  # float32, one core; only v3 was measured
UNIT_SHARE = 0.5  # of the peak that the cell's own arithmetic reaches
PACK_PRODUCTS = 8.0  # packing moves 10 GB/s, less than in a quiet cache: other work has passed since the last call
CALL_US = 3.0
WAKE_US = 40.0  # to hand a call to threads that sleep, as they do after 50 us without work
BARRIER_US = 2.0  # 0.1 to 0.4 on cores of their own; far more when a thread has lost its core, which happens everywhere
NUMPY_CALL_US = 1.5


@dataclass(frozen=True)
class Cost:
    """Estimated microseconds a step of a forward pass, and what they are made of.

    Attributes:
        home: the memory that keeps the weights between steps.
        products_us: the larger of moving the weights and multiplying by them; `bound` says which.
        once_us: this step's share of what is done once a call: packing, waking threads, the call.
    """

    home: str
    bound: str
    step_bytes: float
    products_us: float
    units_us: float
    barriers_us: float
    once_us: float

    @property
    def step_us(self) -> float:
        return self.products_us + self.units_us + self.barriers_us + self.once_us


def estimate(problem: Problem, config: Config, work: Work, steps: int, facts: CpuFacts) -> Cost:
    """What `work` costs under `config`."""
    threads = config.threads
    gflops = GFLOPS.get(config.isa, GFLOPS["x86-64-v3"]) * threads * (4 / problem.itemsize)

    def move_us(num_bytes: float, home: str) -> float:
        return num_bytes / (GBYTES_PER_S[home] * (1 + ADDED_BY_A_CORE[home] * (threads - 1)) * 1e3)

    home = budget.home(work.kept_bytes, threads, facts)
    bytes_us = move_us(work.step_bytes, home)
    flops_us = work.product_flops / (gflops * work.peak_share * 1e3)
    packed_home = budget.home(work.packed_bytes, threads, facts)
    return Cost(
        home=home,
        bound="bytes" if bytes_us >= flops_us else "arithmetic",
        step_bytes=work.step_bytes,
        products_us=max(bytes_us, flops_us),
        units_us=work.unit_flops / (gflops * UNIT_SHARE * 1e3) + NUMPY_CALL_US * work.numpy_calls,
        barriers_us=BARRIER_US * work.barriers if threads > 1 else 0.0,
        once_us=(CALL_US + (WAKE_US if threads > 1 else 0.0) + PACK_PRODUCTS * move_us(work.packed_bytes, packed_home))
        / steps,
    )
