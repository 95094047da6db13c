"""What a workload's outputs must be: the float64 reference for the first steps of two sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prnn import reference
from prnn.bench.gpu.variants import Data
from prnn.bench.gpu.workload import GpuWorkload
from prnn.cells import BUILTIN
from prnn.specs import LayerWeights

STEPS = 12
# Largest difference over the largest true value. TF32 keeps as many bits of a factor as float16.
TOLERANCE = {"fp16": 3e-3, "bf16": 2.5e-2, "fp32 tf32": 3e-3, "fp32 ieee": 2e-5}
# A peer must compute the same thing; one that trades digits for speed is still the one to beat.
TIMES_OURS = 4.0
# Two results that may each be off by the tolerance, and more so after many steps.
TIMES_APART = 4.0


def rows(workload: GpuWorkload) -> list[int]:
    """The sequences that are compared."""
    return sorted({0, workload.batch - 1})


def truth(workload: GpuWorkload, data: Data) -> Tensor:
    """y of `rows`: the first STEPS steps, or all where a reverse direction begins at the end; float64 [T, rows, D * P]."""
    w, cell = workload, BUILTIN[workload.cell]
    steps = w.steps if w.directions == 2 else min(w.steps, STEPS)
    y = data.x[:steps, rows(w)].double()
    each = 5 if w.projection else 4
    for layer in range(w.layers):
        outputs = []
        for direction in range(w.directions):
            first = each * (layer * w.directions + direction)
            w_ih, w_hh, b_ih, b_hh, *w_hr = (weight.double() for weight in data.weights[first : first + each])
            weights = LayerWeights(w_ih, w_hh, b_ih, b_hh, w_hr[0] if w_hr else None)
            sizes = (w.output, *[w.hidden] * (len(cell.states) - 1))
            states = [y.new_zeros(y.shape[1], size) for size in sizes]
            outputs.append(reference.layer(cell, y, weights, states, reverse=direction == 1, xp=torch)[0])
        y = torch.cat(outputs, 2)
    return y


def error(y: Tensor, true: Tensor, workload: GpuWorkload) -> float:
    """The largest difference of an output [T, B, D * P] over the largest true value; infinite for a NaN."""
    return difference(y[: true.shape[0], rows(workload)].double(), true)


def apart(ones: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """The largest difference of whole outputs, over the largest value of each; infinite for a NaN."""
    return max(difference(one.float(), other.float()) for one, other in zip(ones, others))


def difference(got: Tensor, true: Tensor) -> float:
    """The largest difference over the largest true value; infinite for another shape or a NaN."""
    if got.shape != true.shape:
        return float("inf")
    value = float((got - true).abs().max())
    return value / max(float(true.abs().max()), 1e-30) if value == value else float("inf")
