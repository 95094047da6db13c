"""Family ``cpu_inplace``: parameters are read where they lie, so that nothing is packed and nothing can be stale."""

from __future__ import annotations

from prnn.facts import CpuFacts
from prnn.kernels.cpu_panels import PEAK_SHARE
from prnn.kernels.family import NATIVE_PASS_ROWS, Config, Work, count_work, native_configs, refuse_native, weight_bytes
from prnn.problem import Problem
from prnn.specs import Available

NAME = "cpu_inplace"
FALLBACK = False


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
    return reason


def work(problem: Problem, batch: int, steps: int) -> Work:
    """See family.Family."""
    input_bytes, recurrent_bytes = weight_bytes(problem)
    input_time = input_bytes / _peak_share(steps * batch, problem.input_size)
    recurrent_time = recurrent_bytes / _peak_share(batch, problem.output_size)
    share = (input_bytes + recurrent_bytes) / (input_time + recurrent_time)
    return count_work(problem, batch, steps, rows_per_pass=NATIVE_PASS_ROWS, packs=False, peak_share=share)


def _peak_share(rows: int, depth: int) -> float:
    # One row waits for the weights, in panels or not. With more, the sums across lanes at the end of a dot product show if it is short.
    return PEAK_SHARE if rows == 1 else 0.72 * depth / (depth + 12)
