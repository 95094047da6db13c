"""Family ``cpu_panels``: weights packed at the start of the call into panels that stay in cache for the whole sequence."""

from __future__ import annotations

from prnn.facts import CpuFacts
from prnn.kernels.family import NATIVE_PASS_ROWS, Config, Work, count_work, native_configs, refuse_native
from prnn.problem import Problem
from prnn.specs import Available

NAME = "cpu_panels"
FALLBACK = False
PEAK_SHARE = 0.75  # beside the time to read the panels
_PEAK_SHARE_OF_ONE_INT8 = (
    0.53  # of one row, which does not share the time to widen a weight; bfloat16 widens in no more time than it saves
)


def configs(problem: Problem, facts: CpuFacts, available: Available) -> tuple[Config, ...]:
    """See family.Family."""
    return native_configs(facts, available)


def refuse(problem: Problem, config: Config, batch: int, available: Available) -> str | None:
    """See family.Family."""
    return refuse_native(problem, config, available)


def work(problem: Problem, batch: int, steps: int) -> Work:
    """See family.Family."""
    peak_share = _PEAK_SHARE_OF_ONE_INT8 if problem.weights == "int8" and batch <= 2 else PEAK_SHARE
    return count_work(problem, batch, steps, rows_per_pass=NATIVE_PASS_ROWS, packs=True, peak_share=peak_share)
