"""Microseconds from counted bytes, operations and barriers.

Products take the time to read their weights and the time to multiply, one after the other: what a core reads ahead hides latency, not
the reading. The rates are those of a machine that is measured (`prnn plan --measure`), or of two cores of an AMD EPYC Milan; on another
CPU the estimates are then off by the ratio of the machines, which moves all candidates alike. The other constants were fitted to medians
of 128 layers on that CPU beside other work (docs/measured.md, Estimates); tests/null/plan/test_cost.py holds them to a part of these.
Costs that do not differ between candidates (x, y, the values kept for backward) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from prnn.facts import CpuFacts, CpuRates
from prnn.kernels import budget
from prnn.kernels.family import Config, Work
from prnn.problem import Problem

GFLOPS = {
    "x86-64-v4": 150.0,
    "x86-64-v3": 97.0,
    "x86-64": 24.0,
    "neon": 45.0,
}  # float32, one core; only v3 was measured
L1_GBYTES_PER_S, L2_GBYTES_PER_S, L3_GBYTES_PER_S, MEMORY_GBYTES_PER_S = 150.0, 92.0, 60.0, 14.0  # of one core
# What a second core adds: caches of its own, most of a shared one, nothing of memory that one core can saturate.
ADDED_BY_A_CORE = {"L1": 1.0, "L2": 1.0, "L3": 0.85, "memory": 0.0}
UNIT_SHARE = 0.44  # of the peak that the cell's own arithmetic reaches
STEP_US = 0.25  # the loop over time, edges of tiles, latency
PACK_PRODUCTS = 8.0  # packing moves 10 GB/s, less than in a quiet cache: other work has passed since the last call
HELD_CALL_US, LAYER_CALL_US = 2.7, 80.0  # Python's part of a step of a Stream, and of a call of a layer
WAKE_US = 40.0  # to hand a call to threads that sleep, as they do after 50 us without work
BARRIER_US = 2.0  # 0.1 to 0.4 on cores of their own; far more when a thread has lost its core, which happens everywhere
NUMPY_CALL_US = 1.5


@dataclass(frozen=True)
class Cost:
    """Estimated microseconds a step of a forward pass, and what they are made of.

    Attributes:
        home: the memory that keeps the weights between steps; of an L3 that keeps a part, the one that keeps more.
        step_bytes: weights read in a step.
        read_us: at least, to read them.
        multiply_us: at least, to multiply by them: at the peak of the cores.
        products_us: both, at the share of the peak that the family reaches.
        units_us: the cell's own arithmetic, and the loop over time.
        once_us: this step's share of what is done once a call: packing, waking threads, the call.
    """

    home: str
    step_bytes: float
    read_us: float
    multiply_us: float
    products_us: float
    units_us: float
    barriers_us: float
    once_us: float

    @property
    def bound(self) -> str:
        """What sets the floor of the products: ``bytes`` or ``arithmetic``."""
        return "bytes" if self.read_us >= self.multiply_us else "arithmetic"

    @property
    def step_us(self) -> float:
        return self.products_us + self.units_us + self.barriers_us + self.once_us


def estimate(problem: Problem, config: Config, work: Work, steps: int, facts: CpuFacts, held: bool = False) -> Cost:
    """What `work` costs under `config`.

    Args:
        held: a step of a Stream, whose weights are packed already.
    """
    threads, rates = config.threads, _rates(config, facts)
    gflops = rates.gflops * threads * (4 / problem.itemsize)
    read_us = _read_us(work.step_bytes, work.kept_bytes, threads, rates, facts)
    multiply_us = work.product_flops / (gflops * 1e3)
    call_us = HELD_CALL_US
    if not held:
        call_us = LAYER_CALL_US + PACK_PRODUCTS * _read_us(work.packed_bytes, work.packed_bytes, threads, rates, facts)
    return Cost(
        home=budget.home(work.kept_bytes, threads, facts),
        step_bytes=work.step_bytes,
        read_us=read_us,
        multiply_us=multiply_us,
        products_us=read_us + multiply_us / work.peak_share,
        units_us=STEP_US + work.unit_flops / (gflops * UNIT_SHARE * 1e3) + NUMPY_CALL_US * work.numpy_calls,
        barriers_us=BARRIER_US * work.barriers if threads > 1 else 0.0,
        once_us=(call_us + (WAKE_US if threads > 1 else 0.0)) / steps,
    )


def _rates(config: Config, facts: CpuFacts) -> CpuRates:
    gflops = GFLOPS.get(config.isa, GFLOPS["x86-64-v3"])
    return facts.rates or CpuRates(gflops, L1_GBYTES_PER_S, L2_GBYTES_PER_S, L3_GBYTES_PER_S, MEMORY_GBYTES_PER_S)


def _read_us(num_bytes: float, kept_bytes: int, threads: int, rates: CpuRates, facts: CpuFacts) -> float:
    """Microseconds to read `num_bytes` of weights, of which `kept_bytes` are read over and over."""

    def us(home: str, rate: float) -> float:
        return num_bytes / (rate * (1 + ADDED_BY_A_CORE[home] * (threads - 1)) * 1e3)

    home = budget.home(kept_bytes, threads, facts)
    if home in ("L1", "L2"):
        return us(home, rates.l1_gbytes_per_s if home == "L1" else rates.l2_gbytes_per_s)
    in_l3 = budget.share_in_l3(kept_bytes, facts)
    return in_l3 * us("L3", rates.l3_gbytes_per_s) + (1 - in_l3) * us("memory", rates.memory_gbytes_per_s)
