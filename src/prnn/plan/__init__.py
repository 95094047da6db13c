"""How a problem is computed: candidates of every family, what each would cost, and the one to run. Values only."""

from prnn.plan.choose import Candidate, Plan, choose

__all__ = ["Candidate", "Plan", "choose"]
