"""Workload: what one row measures, as a value, and the arrays that every variant computes it from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prnn.cells import BUILTIN
from prnn.problem import Problem
from prnn.specs import LayerWeights

Array = Any

CHECKED_STEPS = 8  # of a stream, whose calls take one step each

PASSES = ("forward", "training")


@dataclass(frozen=True)
class Workload:
    """One layer in float32, from zero state.

    Attributes:
        cell: name of a built-in cell.
        mode: ``forward``; with one step: a call of a stream, which keeps its state. ``training``: forward with saving, gradients of
            the input and of the weights.
    """

    cell: str
    mode: str
    hidden: int
    batch: int
    steps: int
    input: int
    threads: int = 1

    @property
    def streaming(self) -> bool:
        return self.mode == "forward" and self.steps == 1

    @property
    def problem(self) -> Problem:
        return Problem(BUILTIN[self.cell], self.input, self.hidden, training=self.mode == "training")

    def __str__(self) -> str:
        return f"{self.cell} {self.mode} H={self.hidden} B={self.batch} T={self.steps}"


@dataclass(frozen=True)
class Data:
    """Arrays in float32, the same in every process.

    Attributes:
        x: [T, B, I]; T is CHECKED_STEPS for a stream.
        d_y: [T, B, H], the gradient that arrives at the output.
    """

    x: Array
    weights: LayerWeights
    d_y: Array


def draw(workload: Workload) -> Data:
    """Inputs from a normal distribution and weights as torch.nn initialises them."""
    rng = np.random.default_rng(0)
    steps = CHECKED_STEPS if workload.streaming else workload.steps

    def normal(width: int) -> Array:
        return rng.standard_normal((steps, workload.batch, width), np.float32)

    def uniform(shape: tuple[int, ...]) -> Array:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    bound = workload.hidden**-0.5
    w_ih, w_hh, b_ih, b_hh = map(uniform, workload.problem.weight_shapes.values())
    return Data(normal(workload.input), LayerWeights(w_ih, w_hh, b_ih, b_hh), normal(workload.hidden))
