"""Family ``cpu_inplace``: for few rows; parameters are read where they lie, so that nothing is packed and nothing can be stale."""

from __future__ import annotations

from prnn.facts import CpuFacts
from prnn.kernels.family import Config, Work, count_work, native_configs, refuse_native
from prnn.problem import Problem
from prnn.specs import Available

NAME = "cpu_inplace"
FALLBACK = False
MAX_BATCH = 8  # rows whose accumulators fit in registers beside the weights


def configs(problem: Problem, facts: CpuFacts, available: Available) -> tuple[Config, ...]:
    """See family.Family."""
    return native_configs(facts, available)


def refuse(problem: Problem, config: Config, batch: int, available: Available) -> str | None:
    """See family.Family."""
    reason = refuse_native(problem, config, available)
    if reason is None and problem.weights != "same":
        reason = (
            f"it reads weights of the arithmetic's type where they lie, and these are {problem.weights}; use cpu_panels"
        )
    if reason is None and batch > MAX_BATCH:
        passes = -(-batch // MAX_BATCH)
        reason = (
            f"a pass over the weights serves at most {MAX_BATCH} rows, so batch {batch} would read them {passes} times a step; "
            "use cpu_panels"
        )
    return reason


def work(problem: Problem, batch: int, steps: int) -> Work:
    """See family.Family."""
    # Dot products along the rows of the weights keep up with the third cache level at one row, which takes a third of the peak.
    return count_work(problem, batch, steps, rows_per_pass=MAX_BATCH, packs=False, peak_share=0.5)
