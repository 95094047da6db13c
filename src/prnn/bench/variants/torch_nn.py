"""torch.nn as its users call it."""

from __future__ import annotations

from typing import Any

import torch

from prnn.bench.variants import Array, Variant, modules
from prnn.bench.workload import Data, Workload


def prepare(workload: Workload, data: Data) -> Variant:
    """See Variant."""
    module = modules.make(torch.nn, workload, data)
    if not workload.streaming:
        return modules.sequence(module, workload, data)
    steps = torch.from_numpy(data.x).unsqueeze(1).unbind()
    state: Any = None

    def step(x: torch.Tensor) -> torch.Tensor:
        nonlocal state
        with torch.inference_mode():
            y, state = module(x, state)
        return y  # type: ignore[no-any-return]

    def outputs() -> dict[str, Array]:
        nonlocal state
        state = None
        return {"y": torch.cat([step(x) for x in steps]).numpy()}

    return Variant(outputs, lambda: step(steps[0]))
