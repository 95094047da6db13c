"""Choose among the GPU's families: every candidate is accepted with a cost or refused with a reason, and the choice is a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prnn.errors import UnsupportedProblem
from prnn.facts import GpuFacts
from prnn.kernels import budget, cluster_forward, grid_forward, launched
from prnn.kernels.gpu import GpuFamily, Resources
from prnn.plan.gpu_cost import GpuCost, estimate
from prnn.problem import Problem

GPU_FAMILIES: tuple[GpuFamily, ...] = (cluster_forward, grid_forward, launched)


@dataclass(frozen=True)
class GpuCandidate:
    """A family and a configuration of it, with its cost, or refused with a reason; exactly one of the two is there."""

    family: str
    config: Any
    resources: Resources
    cost: GpuCost | None = None
    refused: str = ""

    def __str__(self) -> str:
        verdict = f"refused: {self.refused}" if self.cost is None else f"{self.cost.step_us:.2f} us a step"
        return f"{self.family} ({self.config}): {verdict}"


@dataclass(frozen=True)
class GpuPlan:
    """How a problem is run on a GPU.

    Attributes:
        batch, steps, directions: the sizes it was chosen for; other batches and steps still run.
        chosen: one of `candidates`.
    """

    problem: Problem
    facts: GpuFacts
    batch: int
    steps: int
    directions: int
    chosen: GpuCandidate
    candidates: tuple[GpuCandidate, ...]

    @property
    def family(self) -> str:
        return self.chosen.family

    @property
    def config(self) -> Any:
        return self.chosen.config

    @property
    def cost(self) -> GpuCost:
        assert self.chosen.cost is not None  # a refused candidate is never chosen
        return self.chosen.cost

    @property
    def step_us(self) -> float:
        """Estimated microseconds a step of the forward pass."""
        return self.cost.step_us

    @property
    def weights_in(self) -> str:
        """Where the recurrent weights are from step to step, nearest first: ``registers``, ``shared memory``, ``L2``; or ``memory``."""
        return self.chosen.resources.weights_in

    def __str__(self) -> str:
        return f"{self.problem}; batch {self.batch}, steps {self.steps}: {self.chosen}"

    def explain(self) -> str:
        """Where the weights live, what a step takes, and what was refused for which reason; several lines."""
        cost, floor = self.cost, "exchange" if self.chosen.resources.ctas else "launches"
        others = [each for each in self.candidates if each != self.chosen]
        lines = [
            f"{self.problem}; batch {self.batch}, steps {self.steps}, on {self.facts}",
            f"chosen: {self.family} ({self.config}), because its estimate is the lowest",
            *self._weights(),
            f"estimate: {cost.step_us:.2f} us a step = {cost.recurrence_us:.2f} recurrence ({floor} {cost.exchange_us:.2f}, the "
            f"floor of a step) + {cost.input_us:.2f} input product + {cost.once_us:.2f} once a call",
        ]
        if others:
            lines += ["other candidates:", *(f"  {each}" for each in others)]
        return "\n".join(lines)

    def _weights(self) -> list[str]:
        cost, needs = self.cost, self.chosen.resources
        if not needs.ctas:
            products, launches = len(launched.products(self.problem)), launched.num_launches(self.problem)
            return [
                f"weights: in memory, read in every step by {products} of cuBLAS's products",
                f"a step: these and {launches} launches for the cell's own arithmetic, one after the other",
            ]
        limit = budget.thread_registers(needs.threads, self.facts)
        return [
            f"weights: {needs.weights_in} of {needs.ctas} CTAs of {needs.threads} threads; a CTA has {needs.register_weight_bytes} bytes "
            f"of them in registers ({needs.weight_registers} of at most {min(needs.registers, limit)} a thread, limit {limit}), "
            f"{needs.shared_weight_bytes} in shared memory (of {needs.shared_bytes} used) and reads {needs.streamed_weight_bytes} from L2 "
            "in every step",
            f"copies of the weights: {cost.copies}, of which {cost.active} run at once",
        ]


def choose_gpu(
    problem: Problem,
    facts: GpuFacts,
    batch: int,
    steps: int,
    directions: int = 1,
    backend: str = "auto",
    refused: Mapping[tuple[str, Any], str] | None = None,
) -> GpuPlan:
    """The cheapest candidate of all families, or of the one that `backend` names.

    Args:
        refused: (family, config) -> why a compiled kernel turned out not to run as planned.

    Raises:
        ValueError: no family has the name.
        UnsupportedProblem: no family, or not the named one, can run the problem.
    """
    names = [family.NAME for family in GPU_FAMILIES]
    if backend not in ("auto", *names):
        raise ValueError(f"backend must be 'auto' or one of {names} on a GPU, got {backend!r}")
    candidates = []
    narrow = None if problem.weights == "same" else f"{problem.weights} weights have kernels on the CPU only"
    for family in GPU_FAMILIES:
        for config in family.configs(problem, facts):
            needs = family.resources(problem, config)
            reason = narrow or family.refuse(problem, config, facts) or (refused or {}).get((family.NAME, config))
            cost = None if reason else estimate(family, problem, config, batch, steps, directions, facts)
            candidates.append(GpuCandidate(family.NAME, config, needs, cost, reason or ""))
    allowed = [each for each in candidates if each.cost is not None and backend in ("auto", each.family)]
    if not allowed:
        raise UnsupportedProblem(
            "\n".join(
                [
                    f"no family of the GPU can run {problem} with batch {batch} and steps {steps}. Tried:",
                    *(f"  {name}: {_nearest(candidates, name)}" for name in names if backend in ("auto", name)),
                ]
            )
        )
    chosen = min(allowed, key=lambda each: each.cost.step_us if each.cost else 0.0)
    return GpuPlan(problem, facts, batch, steps, directions, chosen, tuple(candidates))


def _nearest(candidates: list[GpuCandidate], family: str) -> str:
    """How many configurations were refused, and why the one was that needs the fewest registers a thread."""
    refused = [each for each in candidates if each.family == family]
    nearest = min(refused, key=lambda each: (each.resources.registers, each.resources.threads))
    return f"{len(refused)} configurations; the nearest, {nearest.config}: {nearest.refused}"
