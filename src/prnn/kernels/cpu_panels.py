"""Family ``cpu_panels``: weights packed at the start of the call into panels that stay in cache for the whole sequence."""

from __future__ import annotations

from prnn.facts import CpuFacts
from prnn.kernels.family import NATIVE_PASS_ROWS, Config, Work, count_work, native_configs, refuse_native
from prnn.problem import Problem
from prnn.specs import Available

NAME = "cpu_panels"
FALLBACK = False
PEAK_SHARE = 0.75  # the prototype reached 70 to 82 of 98 GFLOP/s from panels that are in cache


def configs(problem: Problem, facts: CpuFacts, available: Available) -> tuple[Config, ...]:
    """See family.Family."""
    return native_configs(facts, available)


def refuse(problem: Problem, config: Config, batch: int, available: Available) -> str | None:
    """See family.Family."""
    return refuse_native(problem, config, available)


def work(problem: Problem, batch: int, steps: int) -> Work:
    """See family.Family."""
    # Rows share the time to widen a narrow weight; one row alone reached 46 GFLOP/s with int8 and 58 with bfloat16.
    peak_share = PEAK_SHARE if batch > 2 else {"same": PEAK_SHARE, "bfloat16": 0.6, "int8": 0.5}[problem.weights]
    return count_work(problem, batch, steps, rows_per_pass=NATIVE_PASS_ROWS, packs=True, peak_share=peak_share)
