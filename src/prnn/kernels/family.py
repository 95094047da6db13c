"""A kernel family: one way to compute a layer, described by what it can run and what that takes.

A family is a module of this folder with the members of `Family`. It decides nothing: plan/ compares what families say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from prnn.cells import BUILTIN
from prnn.cells.expr import EXPENSIVE, topological
from prnn.facts import CpuFacts
from prnn.problem import DTYPES, Problem
from prnn.specs import Available


@dataclass(frozen=True)
class Config:
    """The knobs of a CPU family.

    Attributes:
        isa: instruction set; ``numpy`` where numpy does the arithmetic, ``none`` where no build fits this CPU.
        threads: that share the work of every step.
    """

    isa: str
    threads: int

    def __str__(self) -> str:
        return f"{self.isa}, {self.threads} thread{'s' if self.threads > 1 else ''}"


@dataclass(frozen=True)
class Work:
    """What a forward pass takes, counted; averages over its steps.

    Attributes:
        step_bytes: weights read in a step, from wherever they live.
        kept_bytes: weights that every step reads again; the cache that keeps them sets the speed of `step_bytes`.
        packed_bytes: weights rearranged once a call.
        product_flops: of the input and the recurrent product, a step.
        peak_share: of the arithmetic peak that the products reach.
        unit_flops: of the cell's own arithmetic, a step.
        barriers: where all threads wait for each other, a step.
        numpy_calls: a step.
    """

    step_bytes: float
    kept_bytes: int
    packed_bytes: int
    product_flops: int
    peak_share: float
    unit_flops: int
    barriers: int
    numpy_calls: int = 0


class Family(Protocol):
    """What plan/ asks of a family."""

    NAME: str
    FALLBACK: bool  # chosen only where every other family refuses

    def configs(self, problem: Problem, facts: CpuFacts, available: Available) -> tuple[Config, ...]:
        """Every configuration that could make sense."""
        ...

    def refuse(self, problem: Problem, config: Config, batch: int, available: Available) -> str | None:
        """None, or one sentence: what stops this configuration, with numbers, and what to do."""
        ...

    def work(self, problem: Problem, batch: int, steps: int) -> Work:
        """What a call takes, counted."""
        ...


# Instructions that stand for one exp, tanh, sigmoid, log, square root or division.
_EXPENSIVE_FLOPS = 40
# Rows that pass over the native engine's weights together: batch_block and chunk_rows of kernels/cpu/forward.h.
NATIVE_PASS_ROWS = 64


def native_configs(facts: CpuFacts, available: Available) -> tuple[Config, ...]:
    """The best instruction set that both the CPU and the native engine have, on one thread and on all that a call may use."""
    isa = next((each for each in facts.isas if each in available.isas), "none")
    if isa == "none":
        return (Config(isa, 1),)
    return tuple(Config(isa, threads) for threads in sorted({1, available.threads}))


def refuse_native(problem: Problem, config: Config, available: Available) -> str | None:
    """What stops the native engine, whatever the family: no library, no build for this CPU, or no compiler for a user's cell."""
    if not available.library:
        return available.no_library
    if (reason := refuse_dtype(problem)) is not None:
        return reason
    if config.isa == "none":
        return (
            f"the native engine has {len(available.isas)} builds ({', '.join(available.isas)}) and none for this CPU; "
            "build prnn from source on this machine"
        )
    if problem.cell not in BUILTIN.values() and not available.compiler:
        return (
            f"cell {problem.cell.name!r} is not one of the {len(BUILTIN)} built-in cells and has to be compiled, but "
            f"{available.no_compiler}"
        )
    return None


def refuse_dtype(problem: Problem) -> str | None:
    """Numbers that no CPU family computes in; layers of them are computed in float32."""
    if problem.dtype in DTYPES:
        return None
    return f"the CPU computes in {' or '.join(DTYPES)}, the problem is {problem.dtype}; plan it in float32"


def weight_bytes(problem: Problem) -> tuple[int, int]:
    """Bytes of the matrices that meet the input, and of those that meet the state (with the projection); without scales."""
    entering, recurrent = weight_elements(problem)
    return entering * problem.input_itemsize, recurrent * problem.recurrent_itemsize


def weight_elements(problem: Problem) -> tuple[int, int]:
    """Numbers in the matrices that meet the input, and in those that meet the state (with the projection)."""
    cell, hidden = problem.cell, problem.hidden_size
    recurrent = len(cell.recurrent_gates) * hidden * problem.output_size + problem.proj_size * hidden
    return len(cell.input_gates) * hidden * problem.input_size, recurrent


def count_work(
    problem: Problem, batch: int, steps: int, *, rows_per_pass: int, packs: bool, peak_share: float, numpy: bool = False
) -> Work:
    """Count the work of a family that reads all weights once for every `rows_per_pass` rows.

    The input product of a whole sequence is one product with steps * batch rows; the recurrent one has batch rows a step.
    """
    program = problem.cell.program
    input_bytes, recurrent_bytes = weight_bytes(problem)
    input_passes = -(-steps * batch // rows_per_pass) / steps
    recurrent_passes = -(-batch // rows_per_pass)
    nodes = [node for node in topological(problem.cell.next_states) if node.op not in ("leaf", "const", "product")]
    flops_a_unit = sum(_EXPENSIVE_FLOPS if node.op in EXPENSIVE else 1 for node in nodes)
    return Work(
        step_bytes=input_bytes * input_passes + recurrent_bytes * recurrent_passes,
        kept_bytes=recurrent_bytes + (input_bytes if steps == 1 else 0),
        packed_bytes=(input_bytes + recurrent_bytes) if packs else 0,
        product_flops=2 * batch * sum(weight_elements(problem)),
        peak_share=peak_share,
        unit_flops=batch * problem.hidden_size * flops_a_unit,
        barriers=program.num_stages + (1 if problem.proj_size else 0),
        numpy_calls=len(nodes) + 2 * len(program.slots) if numpy else 0,
    )
