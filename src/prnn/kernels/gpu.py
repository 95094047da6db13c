"""What the GPU's families share: their protocol, the text of a kernel, and the arguments of a launch.

A kernel's text is one file without includes: the headers of kernels/cuda, the generated structs Problem, Config and Cell, and an entry
point. Whatever changes the kernel changes the text, so the text names it in a cache.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from ctypes import Structure, c_int, c_int64, c_longlong, c_uint32, c_void_p
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from prnn.cells import Cell
from prnn.cells.emit_c import emit_cell
from prnn.facts import GpuFacts
from prnn.problem import DTYPES, Problem

SOURCES = Path(__file__).parent / "cuda"
ENTRY = "prnn_kernel"
# (dtype, math) -> how the factors of products are encoded.
SCALARS = {
    ("float16", "ieee"): "ptx::Half",
    ("bfloat16", "ieee"): "ptx::Bfloat16",
    ("float32", "tf32"): "ptx::Tf32",
    ("float32", "ieee"): "ptx::Ieee",
    ("float64", "ieee"): "double",
}
# Of parts/layer.cuh.
MAX_STATES, MAX_VECTORS, MAX_DIRECTIONS = 8, 8, 2


@dataclass(frozen=True)
class Features:
    """What a call needs beside the problem itself; part of what is compiled.

    Attributes:
        is_masked: sequences have lengths of their own, or restart.
    """

    is_masked: bool = False


@dataclass(frozen=True)
class Resources:
    """What a kernel takes: an estimate before it is compiled.

    Attributes:
        registers: of a thread, at most, whatever the features; `weight_registers` of them hold R.
        least_registers: with fewer it spills for certain. In between the compiler decides, and what spills is refused once it is compiled.
        threads, shared_bytes: of a CTA; `shared_weight_bytes` of them hold R.
        ctas: that hold one copy of R; 0: nobody does, R is read from memory in every step.
        sequences: that a copy of R serves.
        streamed_weight_bytes: of R, read by a CTA in every step.
    """

    registers: int
    least_registers: int
    weight_registers: int
    threads: int
    shared_bytes: int
    ctas: int
    sequences: int
    shared_weight_bytes: int = 0
    streamed_weight_bytes: int = 0

    @property
    def register_weight_bytes(self) -> int:
        """Of a CTA."""
        return self.weight_registers * 4 * self.threads

    @property
    def weights_in(self) -> str:
        """Where R is from step to step, nearest first."""
        if not self.ctas:
            return "memory"
        places = {
            "registers": self.weight_registers,
            "shared memory": self.shared_weight_bytes,
            "L2": self.streamed_weight_bytes,
        }
        return ", ".join(name for name, size in places.items() if size) or "nowhere"


@dataclass(frozen=True)
class Launch:
    """How a kernel is started. `copies`: of R, over all directions; `is_cooperative`: all CTAs of a copy must run at once.

    A cluster of one CTA is one: without the attribute its instructions are illegal. 0: no clusters.
    """

    ctas: int
    cluster_size: int
    threads: int
    shared_bytes: int
    copies: int
    is_cooperative: bool = False


class GpuFamily(Protocol):
    """What plan/ and runtime/ ask of a family. A config is a frozen dataclass of whole numbers: the struct Config of the kernel."""

    NAME: str
    TEMPLATE: str  # struct template of the kernel

    def configs(self, problem: Problem, facts: GpuFacts) -> tuple[Any, ...]:
        """Every configuration that could make sense."""
        ...

    def refuse(self, problem: Problem, config: Any, facts: GpuFacts) -> str | None:
        """None, or one sentence: what stops this configuration, with numbers, and what to do."""
        ...

    def resources(self, problem: Problem, config: Any) -> Resources:
        """What the kernel takes."""
        ...

    def source(self, problem: Problem, config: Any, features: Features) -> str:
        """The kernel's text."""
        ...

    def launch(self, problem: Problem, config: Any, batch: int, directions: int) -> Launch:
        """How the kernel is started for a batch."""
        ...

    def workspace_bytes(self, problem: Problem, config: Any, batch: int, directions: int) -> int:
        """Of global memory, all zero before every launch, through which CTAs exchange h."""
        ...

    def exchanges(self, problem: Problem, config: Any, batch: int) -> tuple[int, int]:
        """CTAs that wait for one another in a step, and bytes that each of them receives."""
        ...


# ---- what parts/products.cuh says of a type


def units_per_chunk(problem: Problem) -> int:
    """Units of K that the four lanes of a row read together, 16 bytes each."""
    return 64 // problem.itemsize


def is_split(problem: Problem) -> bool:
    """True if a product of float32 is three of TF32, whose factors are kept in two parts each."""
    return problem.dtype == "float32" and problem.math == "ieee"


def chunk_registers(problem: Problem) -> int:
    """Registers that hold a lane's part of 16 rows of R over a chunk."""
    return 16 if is_split(problem) else 8


# ---- text


@cache
def _header(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def include(name: str, seen: set[str] | None = None) -> str:
    """The text of a header of kernels/cuda with those that it includes in place, each once. Other includes stay."""
    seen = set() if seen is None else seen
    if name in seen:
        return ""
    seen.add(name)

    def replace(match: re.Match[str]) -> str:
        return include(match[1], seen) if (SOURCES / match[1]).exists() else match[0]

    text = _header(name).replace("#pragma once\n", "")
    return re.sub(r'^#include "([^"]+)"$', replace, text, flags=re.MULTILINE)


def structs(problem: Problem, config: Any, features: Features) -> str:
    """The generated types of a kernel, for namespace prnn."""
    cell = problem.cell
    program = cell.program
    input_gates = [cell.input_gates.index(each.gate) if each.kind in ("input", "sum") else -1 for each in program.slots]
    recurrent_gates = [cell.recurrent_gates.index(each.gate) if each.kind != "input" else -1 for each in program.slots]
    lines = [
        f"// {problem}",
        "struct Problem {",
        f"  using Scalar = {SCALARS[problem.dtype, problem.math]};",
        f"  static constexpr int hidden = {problem.hidden_size};",
        f"  static constexpr int output = {problem.output_size};",
        f"  static constexpr int num_input_gates = {len(cell.input_gates)};",
        f"  static constexpr bool is_masked = {str(features.is_masked).lower()};",
        _table("input_gate", input_gates),
        _table("recurrent_gate", recurrent_gates),
        _table("product_stage", program.product_stage),
        "};",
        "struct Config {",
        *(f"  static constexpr int {each.name} = {getattr(config, each.name)};" for each in fields(config)),
        "};",
        emit_cell(cell),
    ]
    return "\n".join(lines)


def _table(name: str, values: Sequence[int]) -> str:
    """A function, since device code cannot index a constant array of a class."""
    cases = "".join(f"i == {index} ? {value} : " for index, value in enumerate(values))
    return f"  static constexpr PTX_FN int {name}(int i) {{ return {cases}-1; }}"


def text(
    name: str, template: str, problem: Problem, config: Any, features: Features, arguments: str = "Arguments"
) -> str:
    """The whole text of a kernel: the struct `template` of cuda/`name`.cuh, which takes the struct `arguments`."""
    entry = (
        f"using Kernel = prnn::{template}<prnn::Problem, prnn::Config, prnn::Cell>;\n"
        f"PTX_KERNEL(Kernel::num_threads) {ENTRY}(PTX_PARAMETER prnn::{arguments} args) {{ Kernel::run(args); }}"
    )
    generated = f"namespace prnn {{\n{structs(problem, config, features)}}}  // namespace prnn"
    exact = f"#define PRNN_IS_EXACT {int(problem.dtype in DTYPES and problem.math == 'ieee')}"
    return "\n".join([exact, include(f"{name}.cuh"), generated, entry, ""])


# ---- arguments


class Direction(Structure):
    """struct Direction of parts/layer.cuh, member for member."""

    _fields_ = [
        ("weight_hh", c_void_p),
        ("gates", c_void_p),
        ("bias_ih", c_void_p),
        ("bias_hh", c_void_p),
        ("vectors", c_void_p * MAX_VECTORS),
        ("begin", c_void_p * MAX_STATES),
        ("initial", c_void_p * MAX_STATES),
        ("end", c_void_p * MAX_STATES),
        ("y", c_void_p),
        ("restart", c_void_p),
        ("first_gate_row", c_int64),
        ("first_step", c_int),
        ("reverse", c_int),
        ("begin_is_float", c_int),
        ("end_is_float", c_int),
    ]


class Patience(Structure):
    """struct Patience of parts/ptx.cuh."""

    _fields_ = [("cycles", c_longlong), ("stopped", c_void_p), ("launch", c_uint32)]


class Arguments(Structure):
    """struct Arguments of parts/layer.cuh, member for member."""

    _fields_ = [
        ("directions", Direction * MAX_DIRECTIONS),
        ("lengths", c_void_p),
        ("row_of_step", c_void_p),
        ("y_pitch", c_int64),
        ("patience", Patience),
        ("num_steps", c_int),
        ("batch", c_int),
        ("copies_per_direction", c_int),
        ("first_copy", c_int),
        ("exchange", c_void_p),
        ("zero_padding", c_int),
    ]


def fill(target: ctypes.Array[Any], addresses: list[int]) -> None:
    """Write addresses to the front of an array of pointers."""
    for index, address in enumerate(addresses):
        target[index] = address


def too_many(cell: Cell) -> str | None:
    """Why a cell does not fit the arguments of a launch."""
    if len(cell.states) > MAX_STATES or len(cell.vectors) > MAX_VECTORS:
        return (
            f"a launch takes at most {MAX_STATES} states and {MAX_VECTORS} vectors; {cell.name} has "
            f"{len(cell.states)} and {len(cell.vectors)}"
        )
    return None


def refuse_resident(problem: Problem) -> str | None:
    """What no family that keeps R on the chip runs, whatever its configuration, in one sentence; or None."""
    cell = problem.cell
    if problem.dtype == "float64":
        return f"its products take float16, bfloat16 or float32, the problem is {problem.dtype}"
    if problem.training:
        return "it keeps nothing for a backward pass"
    if problem.proj_size:
        return f"it does not project the output (proj_size {problem.proj_size})"
    if cell.program.num_stages > 1:
        count = len(cell.program.products)
        return f"a step of {cell.name} has {count} product{'s' if count > 1 else ''} of a vector that the step itself computes"
    return None
