"""What a workload's outputs must be: torch.nn in float64, and how far torch.nn in float32 is from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from prnn.bench.variants import Array, modules
from prnn.bench.workload import Workload, draw

# Of an output's largest value. Ours may err four times as much as torch.nn in float32 does.
TIMES_TORCH, BEYOND_TORCH = 4.0, 1e-6
# A peer must compute the same thing; one that trades digits for speed is still the one to beat.
PEER_LIMIT = 1e-3


@dataclass(frozen=True)
class Truth:
    """Float64 outputs by name, and the error of torch.nn in float32 in each."""

    outputs: dict[str, Array]
    torch_error: dict[str, float]

    def errors(self, outputs: dict[str, Array]) -> dict[str, float]:
        """The largest difference in each output over the largest value of the true one; infinite for a missing or wrong shape."""
        return {name: error(outputs[name], true) if name in outputs else np.inf for name, true in self.outputs.items()}

    def accepts(self, errors: dict[str, float]) -> bool:
        """Whether every error is within this library's own tolerance."""
        return all(errors[name] <= TIMES_TORCH * self.torch_error[name] + BEYOND_TORCH for name in self.outputs)


def error(got: Array, true: Array) -> float:
    """The largest difference over the largest true value; infinite for another shape or a NaN."""
    if got.shape != true.shape:
        return np.inf
    difference = float(np.abs(got - true).max())
    return difference / float(np.abs(true).max()) if difference == difference else np.inf


def truth(workload: Workload) -> Truth:
    """Computed here; outputs as those of variants.Variant."""
    data = draw(workload)

    def computed(dtype: torch.dtype) -> dict[str, Array]:
        module = modules.make(torch.nn, workload, data, dtype)
        outputs = modules.sequence(module, workload, data, dtype).outputs()
        return {"y": outputs["y"]} if workload.streaming else outputs

    exact, single = computed(torch.float64), computed(torch.float32)
    return Truth(exact, {name: error(single[name], exact[name]) for name in exact})
