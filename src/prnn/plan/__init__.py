"""How a problem is computed: candidates of every family, what each would cost, and the one to run. Values only."""

from prnn.plan.choose import Candidate, Plan, choose, with_rates
from prnn.plan.gpu import GPU_FAMILIES, GpuCandidate, GpuPlan, choose_gpu

__all__ = ["GPU_FAMILIES", "Candidate", "GpuCandidate", "GpuPlan", "Plan", "choose", "choose_gpu", "with_rates"]
