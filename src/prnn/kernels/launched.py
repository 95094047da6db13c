"""Family ``launched``: products by the caller's library and one kernel for the cell's own arithmetic, launched for every stage of every
step. Nothing stays on the chip, so it runs every layer: for what is better off without residence, and where nothing else can.

The kernel: cuda/cell_step.cuh. Who launches it: ops/launched.py.
"""

from __future__ import annotations

from ctypes import Structure, c_int, c_void_p
from dataclasses import dataclass

from prnn.facts import GpuFacts
from prnn.kernels import gpu
from prnn.kernels.gpu import Features, Launch, Resources
from prnn.problem import Problem

NAME = "launched"
TEMPLATE = "CellStep"
HEADER = "cell_step"
# Stages beside those of the cell, as in the kernel.
BEGIN, PROJECT, END, KEEP = -1, -2, -3, -4


@dataclass(frozen=True)
class LaunchedConfig:
    """`threads` of a CTA: one for each direction, sequence and unit."""

    threads: int

    def __str__(self) -> str:
        return f"products and {self.threads} threads a CTA"


class StepArguments(Structure):
    """struct StepArguments of cell_step.cuh, member for member."""

    _fields_ = [
        ("call", gpu.Arguments),
        ("kept", c_void_p),
        ("h", c_void_p),
        ("z", c_void_p),
        ("operands", c_void_p),
        ("products", c_void_p),
        ("raw", c_void_p),
        ("projected", c_void_p),
        ("states", c_void_p),
        ("num_directions", c_int),
        ("step", c_int),
        ("stage", c_int),
    ]


def configs(problem: Problem, facts: GpuFacts) -> tuple[LaunchedConfig, ...]:
    """See gpu.GpuFamily."""
    return (LaunchedConfig(256),)


def refuse(problem: Problem, config: LaunchedConfig, facts: GpuFacts) -> str | None:
    """See gpu.GpuFamily."""
    if problem.training:
        return "it keeps nothing for a backward pass"
    if problem.proj_size and problem.cell.program.products:
        return f"{problem.cell.name} multiplies vectors of {problem.hidden_size} units by a matrix of {problem.proj_size} columns"
    return gpu.too_many(problem.cell)


def resources(problem: Problem, config: LaunchedConfig) -> Resources:
    """See gpu.GpuFamily."""
    return Resources(
        registers=255,  # nothing depends on it: what spills only runs slower
        least_registers=0,
        weight_registers=0,
        threads=config.threads,
        shared_bytes=0,
        ctas=0,
        sequences=1,
    )


def source(problem: Problem, config: LaunchedConfig, features: Features) -> str:
    """See gpu.GpuFamily."""
    return gpu.text(HEADER, TEMPLATE, problem, config, features, StepArguments.__name__)


def launch(problem: Problem, config: LaunchedConfig, batch: int, directions: int) -> Launch:
    """See gpu.GpuFamily. Of each stage."""
    ctas = -(-directions * batch * problem.hidden_size // config.threads)
    return Launch(ctas, 0, config.threads, 0, directions)


def workspace_bytes(problem: Problem, config: LaunchedConfig, batch: int, directions: int) -> int:
    """See gpu.GpuFamily."""
    return 0


def exchanges(problem: Problem, config: LaunchedConfig, batch: int) -> tuple[int, int]:
    """See gpu.GpuFamily."""
    return 1, 0


def num_launches(problem: Problem) -> int:
    """Of the kernel, in a step."""
    return problem.cell.program.num_stages + bool(problem.proj_size)


def products(problem: Problem) -> list[tuple[int, int]]:
    """(rows, columns) of every matrix that a step multiplies, one after the other."""
    program, hidden = problem.cell.program, problem.hidden_size
    found = [(program.num_recurrent_slots * hidden, problem.output_size)] if program.num_recurrent_slots else []
    found += [(hidden, hidden)] * len(program.products)
    return found + [(problem.proj_size, hidden)] * bool(problem.proj_size)
