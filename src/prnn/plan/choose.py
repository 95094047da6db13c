"""Choose among the families: every candidate is accepted with a cost or refused with a reason, and the choice is a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from prnn.errors import UnsupportedProblem
from prnn.facts import CpuFacts, CpuRates
from prnn.kernels import cpu_inplace, cpu_panels, interpreted
from prnn.kernels.family import Config, Family
from prnn.plan.cost import Cost, estimate
from prnn.problem import Problem
from prnn.specs import Available

FAMILIES: tuple[Family, ...] = (cpu_panels, cpu_inplace, interpreted)
_BY_NAME = {family.NAME: family for family in FAMILIES}


@dataclass(frozen=True)
class Candidate:
    """A family and a configuration of it, with its cost, or refused with a reason; exactly one of the two is there."""

    family: str
    config: Config
    fallback: bool = False
    cost: Cost | None = None
    refused: str = ""

    def __str__(self) -> str:
        verdict = f"refused: {self.refused}" if self.cost is None else f"{self.cost.step_us:.2f} us a step"
        return f"{self.family} ({self.config}): {verdict}"


@dataclass(frozen=True)
class Plan:
    """How a problem is run.

    Attributes:
        batch, steps: the sizes it was chosen for; any others still run.
        chosen: one of `candidates`.
        rates: what the estimates were made with, if `with_rates` made them; the choice was made without.
    """

    problem: Problem
    batch: int
    steps: int
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    rates: CpuRates | None = None

    @property
    def family(self) -> str:
        return self.chosen.family

    @property
    def config(self) -> Config:
        return self.chosen.config

    @property
    def cost(self) -> Cost:
        assert self.chosen.cost is not None  # a refused candidate is never chosen
        return self.chosen.cost

    @property
    def step_us(self) -> float:
        """Estimated microseconds a step of the forward pass."""
        return self.cost.step_us

    def __str__(self) -> str:
        weights = f"weights in {self.cost.home}"
        return f"{self.problem}; batch {self.batch}, steps {self.steps}: {self.chosen}, {weights}"

    def explain(self) -> str:
        """Why this family, where the weights live, what a step takes, and what was refused for which reason; several lines."""
        cost = self.cost
        others = [each for each in self.candidates if each != self.chosen]
        lines = [
            f"{self.problem}; batch {self.batch}, steps {self.steps}",
            f"chosen: {self.family} ({self.config}), because {self._why()}{', before the rates were measured' if self.rates else ''}",
            f"rates of a core: {self.rates or 'those of an AMD EPYC Milan'}",
            f"weights: {cost.step_bytes / 2**20:.3g} MiB read a step, kept in {cost.home} from step to step",
            f"floor: {cost.read_us:.2f} us to read them ({cost.step_bytes / max(cost.read_us, 1e-9) / 1e3:.0f} GB/s), "
            f"{cost.multiply_us:.2f} us to multiply at the peak",
            f"estimate: {cost.step_us:.2f} us a step = {cost.products_us:.2f} products (bound by {cost.bound}) "
            f"+ {cost.units_us:.2f} the cell's own arithmetic + {cost.barriers_us:.2f} barriers + {cost.once_us:.2f} once a call",
        ]
        if others:
            lines += ["other candidates:", *(f"  {each}" for each in others)]
        return "\n".join(lines)

    def _why(self) -> str:
        if self.chosen.fallback:
            return "every faster family was refused"
        rivals = [
            each for each in self.candidates if each.cost is not None and not each.fallback and each != self.chosen
        ]
        return "its estimate is the lowest" if rivals else "no other family but the fallback can run it"


def choose(
    problem: Problem,
    facts: CpuFacts,
    batch: int,
    steps: int,
    available: Available,
    backend: str = "auto",
    held: bool = False,
) -> Plan:
    """The cheapest candidate of all families, or of the one that `backend` names.

    Args:
        batch, steps: sizes to choose for, at least 1 each.
        backend: ``auto``, or the name of a family.
        held: the caller keeps the weights packed between calls, as a Stream does.

    Raises:
        ValueError: no family has the name.
        UnsupportedProblem: the named family cannot run the problem.
    """
    names = [family.NAME for family in FAMILIES]
    if backend not in ("auto", *names):
        raise ValueError(f"backend must be 'auto' or one of {names}, got {backend!r}")
    candidates = tuple(
        candidate
        for family in FAMILIES
        for config in family.configs(problem, facts, available)
        for candidate in [_candidate(family, config, problem, facts, batch, steps, available, held)]
    )
    allowed = [each for each in candidates if each.cost is not None and backend in ("auto", each.family)]
    if not allowed:
        raise UnsupportedProblem(_nothing_runs(problem, batch, steps, backend, candidates))
    chosen = min(allowed, key=_rank)
    return Plan(problem, batch, steps, chosen, candidates)


def with_rates(plan: Plan, facts: CpuFacts, held: bool) -> Plan:
    """The same choice with the estimates that `facts.rates` make; `held` as for `choose`."""
    candidates = tuple(
        replace(each, cost=estimate(plan.problem, each.config, work, plan.steps, facts, held)) if each.cost else each
        for each in plan.candidates
        for work in [_BY_NAME[each.family].work(plan.problem, plan.batch, plan.steps)]
    )
    return replace(
        plan, chosen=candidates[plan.candidates.index(plan.chosen)], candidates=candidates, rates=facts.rates
    )


def _candidate(
    family: Family,
    config: Config,
    problem: Problem,
    facts: CpuFacts,
    batch: int,
    steps: int,
    available: Available,
    held: bool,
) -> Candidate:
    reason = family.refuse(problem, config, batch, available)
    if reason is not None:
        return Candidate(family.NAME, config, family.FALLBACK, refused=reason)
    work = family.work(problem, batch, steps)
    cost = estimate(problem, config, work, steps, facts, held)
    return Candidate(family.NAME, config, family.FALLBACK, cost)


def _rank(candidate: Candidate) -> tuple[bool, float]:
    assert candidate.cost is not None
    return candidate.fallback, candidate.cost.step_us


def _nothing_runs(problem: Problem, batch: int, steps: int, backend: str, candidates: Sequence[Candidate]) -> str:
    return "\n".join(
        [
            f"backend={backend!r} cannot run {problem} with batch {batch} and steps {steps}. Tried:",
            *(f"  {each}" for each in candidates),
            "Use backend='auto', which takes the fastest that runs.",
        ]
    )
